"""What the host part of a CUDA source takes of CUDA's headers, for g++; a test says what a launch does (`cudaLaunchKernelEx`)."""

HOST_TYPES = r"""
#include <cstddef>
#include <cstring>
struct uint4 { unsigned x, y, z, w; };
struct dim3 { unsigned x, y, z; dim3(unsigned x = 1) : x(x), y(1), z(1) {} };
enum cudaError_t { cudaSuccess, cudaErrorInvalidValue };
using cudaStream_t = void*;
struct cudaFuncAttributes { int ptxVersion; };
enum { cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor, cudaLaunchAttributeClusterDimension, cudaLaunchAttributeProgrammaticStreamSerialization,
       cudaFuncAttributeMaxDynamicSharedMemorySize, cudaFuncAttributeNonPortableClusterSizeAllowed };
struct cudaLaunchAttribute { int id; struct { dim3 clusterDim; int programmaticStreamSerializationAllowed; } val; };
struct cudaLaunchConfig_t { dim3 gridDim, blockDim; size_t dynamicSmemBytes; cudaStream_t stream; cudaLaunchAttribute* attrs; unsigned numAttrs; };
"""
