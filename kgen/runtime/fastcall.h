// Plans of calls, and a call by one of them: what fastcall.c, which says more, is made of.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    TENSORS = 32,  // most tensors of a call, those it makes among them
    NUMBERS = 32,  // most numbers of a call
    WORDS = 512,   // most words of a key
    BUCKETS = 256, // lists of plans
    KEPT = 512,    // most plans of a kernel
    VARIANTS = 64, // most variants of a plan
    KNOWN = 16,    // most kinds of tensors (sets of dispatch keys)
    REGISTERS = 6 + 8, // of the System V ABI: words of a CPU call that are passed in integer and in floating registers
    STACK = 96,        // its other words
    BYTES = 4096,      // most bytes of a launch's arguments
    PARAMETERS = 256,  // most arguments of a launch
};

// ------------------------------------------------------------------------------------------------ what is found in torch

typedef struct { unsigned grid[3], block[3], shared; void *stream, *attributes; unsigned count; } LaunchConfig;
typedef struct { int id; char pad[4]; unsigned value[16]; } LaunchAttribute;

static struct {
    int32_t (*get_data_ptr)(void *, void **);
    int32_t (*get_sizes)(void *, int64_t **);
    int32_t (*get_strides)(void *, int64_t **);
    int32_t (*get_dim)(void *, int64_t *);
    int32_t (*get_dtype)(void *, int32_t *);
    int32_t (*get_device_index)(void *, int32_t *);
    int64_t (*function_modes)(void);    // at::impl::PythonTorchFunctionTLS::stack_len
    int64_t (*dispatch_modes)(void);    // c10::impl::TorchDispatchModeTLS::stack_len
    void **(*transforms)(void);         // at::functorch::getDynamicLayerStack, a std::vector: its begin and end
    void **(*tracing)(void);            // torch::jit::tracer::getTracingState, a std::shared_ptr
    bool (*autocast)(int);              // at::autocast::is_autocast_enabled of a kind of device
    bool (*grad_mode)(void);            // c10::GradMode::is_enabled
    bool (*requires_grad)(void *);      // c10::TensorImpl::requires_grad
    void (*bump_version)(void *);       // torch::autograd::impl::bump_version
    int32_t (*current_stream)(int32_t, void **);
    int (*current_context)(void **);    // cuCtxGetCurrent
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    int (*launch_ex)(const LaunchConfig *, void *, void **, void **);
} torch;

static struct { const char *name; void **place; } FUNCTIONS[] = {
#define FOUND(name) {#name, (void **)&torch.name}
    FOUND(get_data_ptr), FOUND(get_sizes), FOUND(get_strides), FOUND(get_dim), FOUND(get_dtype), FOUND(get_device_index),
    FOUND(function_modes), FOUND(dispatch_modes), FOUND(transforms), FOUND(tracing), FOUND(autocast), FOUND(grad_mode),
    FOUND(requires_grad), FOUND(bump_version), FOUND(current_stream), FOUND(current_context), FOUND(launch), FOUND(launch_ex),
};

static Py_ssize_t handle_offset;  // of the at::Tensor in a Python tensor
static Py_ssize_t keys_offset;    // of the dispatch keys in a c10::TensorImpl
static PyTypeObject *tensor_type, *parameter_type;
static PyObject *compiler, *forward_ad, *is_compiling, *calls;  // dictionaries of torch.compiler and forward_ad; a function; kgen's
static PyObject *s_compiling_flag, *s_is_compiling, *s_level, *s_out, *s_target, *s_advise;
static uint64_t kinds_known[KNOWN];
static int kinds_count;

// ---------------------------------------------------------------------------------------------------------------- plans

typedef struct { uint32_t at, which, code; } Fill;  // a word of the arguments, and the place or number that belongs there

typedef struct {
    int cuda;
    void *function;
    unsigned grid[3], block[3], shared, cluster;
    char *arguments;         // CUDA: the kernel's arguments, one behind the other; CPU: words, by register and stack
    int size;                // of those, in bytes
    uint32_t *parameters;    // CUDA: where each argument begins
    int parameter_count;
    Fill *pointers, *numbers, *derived;
    int pointer_count, number_count, derived_count, stack;
    int follows;             // CUDA: the launch before, for which the kernel waits, and so may begin before that has ended
} Launch;

typedef struct { PyObject *shape, *strides, *dtype; bool large; } Make;

typedef struct {
    uint64_t places[2];      // 4 bits a tensor
    uint64_t compared;       // a bit for each number that the launches were prepared for
    int64_t numbers[NUMBERS];
    PyObject *derive;        // makes numbers of the host's arithmetic out of the call's: bytes
    PyObject *owner;         // what keeps the functions loaded
    Make *makes;             // memory to work in
    Launch *launches;
    int make_count, count;
} Variant;

typedef struct Plan {
    struct Plan *next;
    int references;
    uint64_t hash;
    int words;
    int64_t *key;
    int tensors, given;      // given: parameters among them, the others are `out`
    int device, device_type; // index, or -1 on the CPU
    void *context;
    Make *makes;
    int make_count, results;
    PyObject *allocate;
    int (*pairs)[3];         // written, other, whether they may lie in one place
    int64_t (*sizes)[2];     // bytes of both
    int pair_count;
    uint64_t empty, written; // bits of tensors without elements, and of those to mark as written
    bool aligned, release;   // whether places count; whether other Python threads may run meanwhile
    Variant *variants[VARIANTS];
    int variant_count, oldest;
} Plan;

typedef struct {
    PyObject_HEAD
    PyObject *names, *defaults;  // of the parameters; NotImplemented where there is no default
    char *kinds;                 // of each parameter: t(ensor), f(loat), i(nt)
    int count, tensors, numbers, fresh;
    bool takes_out, takes_target;
    Plan *table[BUCKETS];
    int plans;
    PyObject *derive, *derived;  // the last numbers that were derived, which many tensors share
    int64_t derived_from[NUMBERS];
} Fast;

typedef struct {
    PyObject *values[TENSORS + NUMBERS];  // borrowed
    PyObject *tensors[TENSORS];           // borrowed: parameters, then out
    PyObject *out;                        // borrowed, or NULL
    int64_t numbers[NUMBERS];             // doubles by their bits
    uintptr_t places[TENSORS];
    int64_t key[WORDS];
    int words, tensor_count, target;
} Call;

static void release_makes(Make *makes, int count) {
    for (int k = 0; k < count; k++) {
        Py_XDECREF(makes[k].shape);
        Py_XDECREF(makes[k].strides);
        Py_XDECREF(makes[k].dtype);
    }
    PyMem_Free(makes);
}

static void release_variant(Variant *variant) {
    for (int k = 0; variant->launches && k < variant->count; k++) {
        Launch *launch = &variant->launches[k];
        PyMem_Free(launch->arguments);
        PyMem_Free(launch->parameters);
        PyMem_Free(launch->pointers);
        PyMem_Free(launch->numbers);
        PyMem_Free(launch->derived);
    }
    PyMem_Free(variant->launches);
    release_makes(variant->makes, variant->make_count);
    Py_XDECREF(variant->derive);
    Py_XDECREF(variant->owner);
    PyMem_Free(variant);
}

static void release_plan(Plan *plan) {
    if (--plan->references) return;
    for (int k = 0; k < plan->variant_count; k++) release_variant(plan->variants[k]);
    release_makes(plan->makes, plan->make_count);
    Py_XDECREF(plan->allocate);
    PyMem_Free(plan->pairs);
    PyMem_Free(plan->sizes);
    PyMem_Free(plan->key);
    PyMem_Free(plan);
}

// ------------------------------------------------------------------------------------------------------ reading a call

static inline void *handle(PyObject *tensor) { return (char *)tensor + handle_offset; }

static inline void *implementation(PyObject *tensor) { return *(void **)handle(tensor); }

static inline uint64_t dispatch_keys(PyObject *tensor) { return *(uint64_t *)((char *)implementation(tensor) + keys_offset); }

static inline bool is_plain_type(PyObject *value) { return Py_TYPE(value) == tensor_type || Py_TYPE(value) == parameter_type; }

// Writes a tensor's part of a key, for which there is `room`, and its place; returns its words, 0 where it is none that a plan knows.  Only
// tensors whose dispatch keys a plan has are read further: of others the C functions may fail.
static int read_words(PyObject *tensor, int64_t *key, int64_t room, uintptr_t *at) {
    if (!is_plain_type(tensor) || !implementation(tensor)) return 0;
    uint64_t keys = dispatch_keys(tensor);
    int known = 0;
    while (known < kinds_count && kinds_known[known] != keys) known++;
    if (known == kinds_count) return 0;
    void *own = handle(tensor), *place;
    int64_t rank, *sizes, *strides;
    int32_t dtype, device;
    if (torch.get_dim(own, &rank) || rank < 0 || 2 + 2 * rank > room) return 0;
    if (torch.get_dtype(own, &dtype) || torch.get_device_index(own, &device) || torch.get_data_ptr(own, &place)) return 0;
    if (torch.get_sizes(own, &sizes) || torch.get_strides(own, &strides)) return 0;
    key[0] = (int64_t)keys;
    key[1] = (int64_t)(uint8_t)dtype | (int64_t)(uint16_t)device << 8 | rank << 24;
    for (int64_t d = 0; d < rank; d++) key[2 + d] = sizes[d];
    for (int64_t d = 0; d < rank; d++) key[2 + rank + d] = strides[d];
    *at = (uintptr_t)place;
    return (int)(2 + 2 * rank);
}

// Adds a tensor to a call; false where it is none that a plan knows.
static bool read_tensor(Call *call, int k, PyObject *tensor) {
    int words = read_words(tensor, call->key + call->words, WORDS - call->words, &call->places[k]);
    call->words += words;
    call->tensors[k] = tensor;
    return words > 0;
}

// From now on tensors with these dispatch keys are read, unless there are too many kinds.
static void learn_kind(uint64_t keys) {
    int known = 0;
    while (known < kinds_count && kinds_known[known] != keys) known++;
    if (known == kinds_count && known < KNOWN) kinds_known[kinds_count++] = keys;
}

// The tensors of `out`, one or a tuple of them, behind the parameters.
static bool read_out(const Fast *self, Call *call) {
    PyObject *out = call->out;
    if (!out) return true;
    if (self->tensors + self->fresh > TENSORS) return false;
    if (!PyTuple_CheckExact(out)) return self->fresh == 1 && read_tensor(call, call->tensor_count++, out);
    if (PyTuple_GET_SIZE(out) != self->fresh || self->fresh == 0) return false;
    for (int k = 0; k < self->fresh; k++)
        if (!read_tensor(call, call->tensor_count++, PyTuple_GET_ITEM(out, k))) return false;
    return true;
}

static int target_code(PyObject *target) {
    static const char *const names[] = {"triton", "cuda", "cpp", "torch"};
    if (target == NULL || target == Py_None) return 0;
    for (int k = 0; k < 4 && PyUnicode_CheckExact(target); k++)
        if (PyUnicode_CompareWithASCIIString(target, names[k]) == 0) return k + 1;
    return -1;
}

static bool same_name(PyObject *a, PyObject *b) { return a == b || PyUnicode_Compare(a, b) == 0; }

// Puts the arguments in the order of the parameters; false where some are too many, unknown or missing.
static bool arrange(const Fast *self, Call *call, PyObject *args, PyObject *kwargs) {
    Py_ssize_t given = PyTuple_GET_SIZE(args);
    if (given > self->count) return false;
    call->out = NULL;
    call->target = 0;
    for (Py_ssize_t k = 0; k < given; k++) call->values[k] = PyTuple_GET_ITEM(args, k);
    for (Py_ssize_t k = given; k < self->count; k++) call->values[k] = PyTuple_GET_ITEM(self->defaults, k);
    if (kwargs) {
        PyObject *name, *value;
        Py_ssize_t at = 0;
        while (PyDict_Next(kwargs, &at, &name, &value)) {
            if (self->takes_out && same_name(name, s_out)) {
                call->out = value == Py_None ? NULL : value;
            } else if (self->takes_target && same_name(name, s_target)) {
                if ((call->target = target_code(value)) < 0) return false;
            } else {
                Py_ssize_t k = given;
                while (k < self->count && !same_name(name, PyTuple_GET_ITEM(self->names, k))) k++;
                if (k == self->count) return false;
                call->values[k] = value;
            }
        }
    }
    return true;
}

// Reads the arguments into a call; false where one is not of the kind that plans have.
static bool read_call(const Fast *self, Call *call, PyObject *args, PyObject *kwargs) {
    if (!arrange(self, call, args, kwargs)) return false;
    int number = 0;
    call->words = 1;
    call->tensor_count = 0;
    for (int k = 0; k < self->count; k++) {
        PyObject *value = call->values[k];
        if (self->kinds[k] == 't') {
            if (!read_tensor(call, call->tensor_count++, value)) return false;
        } else if (PyFloat_CheckExact(value) && self->kinds[k] == 'f') {
            double x = PyFloat_AS_DOUBLE(value);
            memcpy(&call->numbers[number++], &x, sizeof x);
        } else if (PyLong_CheckExact(value)) {
            int overflow = 0;
            int64_t x = PyLong_AsLongLongAndOverflow(value, &overflow);
            if (overflow || (self->kinds[k] == 'f' && (x > 1LL << 53 || x < -(1LL << 53)))) return false;
            double as_float = (double)x;
            if (self->kinds[k] == 'f') memcpy(&x, &as_float, sizeof x);
            call->numbers[number++] = x;
        } else {
            return false;  // another kind of number, or none
        }
    }
    if (!read_out(self, call)) return false;
    call->key[0] = call->target | (call->out ? 8 : 0);
    return true;
}

static uint64_t hash_of(const int64_t *key, int words) {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (int k = 0; k < words; k++) hash = (hash ^ (uint64_t)key[k]) * 0xD6E8FEB86659FD93u, hash ^= hash >> 32;
    return hash;
}

static Plan *find(const Fast *self, const Call *call) {
    uint64_t hash = hash_of(call->key, call->words);
    for (Plan *plan = self->table[hash % BUCKETS]; plan; plan = plan->next)
        if (plan->hash == hash && plan->words == call->words && !memcmp(plan->key, call->key, sizeof(int64_t) * (size_t)call->words))
            return plan;
    return NULL;
}

// ---------------------------------------------------------------------------------------------------------- may it run

// Whether torch is in none of the modes in which a call is more than its launches.
static bool ordinary(void) {
    if (torch.function_modes() || torch.dispatch_modes() || *torch.tracing()) return false;
    void **layers = torch.transforms();
    if (layers[0] != layers[1]) return false;
    if (PyDict_GetItem(compiler, s_compiling_flag) != Py_False || PyDict_GetItem(compiler, s_is_compiling) != is_compiling) return false;
    PyObject *level = PyDict_GetItem(forward_ad, s_level);
    return level && PyLong_CheckExact(level) && PyLong_AsLong(level) < 0;
}

static bool may_run(const Plan *plan, const Call *call) {
    if (torch.autocast(plan->device_type)) return false;
    bool tracked = torch.grad_mode();
    for (int k = tracked ? 0 : plan->given; k < plan->tensors; k++)
        if (torch.requires_grad(implementation(call->tensors[k]))) return false;
    for (int k = 0; k < plan->tensors; k++)
        if (!call->places[k] && !(plan->empty >> k & 1)) return false;  // its storage was freed
    for (int k = 0; k < plan->pair_count; k++) {
        uintptr_t a = call->places[plan->pairs[k][0]], b = call->places[plan->pairs[k][1]];
        if (a < b + (uintptr_t)plan->sizes[k][1] && b < a + (uintptr_t)plan->sizes[k][0] && (a != b || !plan->pairs[k][2])) return false;
    }
    if (plan->device >= 0) {
        void *context;
        if (torch.current_context(&context) || context != plan->context) return false;
    }
    return true;
}

static Variant *choose(const Plan *plan, const Call *call, int places, int numbers) {
    uint64_t low[2] = {0, 0};
    if (plan->aligned)
        for (int k = 0; k < places; k++) low[k / 16] |= (call->places[k] & 15) << (k % 16 * 4);
    for (int v = 0; v < plan->variant_count; v++) {
        Variant *variant = plan->variants[v];
        if (variant->places[0] != low[0] || variant->places[1] != low[1]) continue;
        int k = 0;
        while (k < numbers && (!(variant->compared >> k & 1) || variant->numbers[k] == call->numbers[k])) k++;
        if (k == numbers) return variant;
    }
    return NULL;
}

// ------------------------------------------------------------------------------------------------------------ it runs

// A new tensor, whose place is known then; NULL with an exception, or without one where it is none that can be read.
static PyObject *make(const Make *wanted, PyObject *allocate, uintptr_t *place) {
    PyObject *arguments[] = {NULL, wanted->shape, wanted->strides, wanted->dtype};
    PyObject *made = PyObject_Vectorcall(allocate, arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (made && wanted->large) {
        PyObject *advise = PyDict_GetItem(calls, s_advise);
        PyObject *same = advise ? PyObject_CallOneArg(advise, made) : NULL;
        if (!same) Py_CLEAR(made);
        Py_XDECREF(same);
    }
    void *found = NULL;
    if (made && (!is_plain_type(made) || torch.get_data_ptr(handle(made), &found))) Py_CLEAR(made);
    *place = (uintptr_t)found;
    return made;
}

// A launch's arguments, with this call's places and numbers in them.  They lie with the call: while the driver or a CPU kernel works,
// another thread may make the same launch.
static void fill(char *to, const Launch *launch, const Call *call, const char *derived) {
    memcpy(to, launch->arguments, (size_t)launch->size);
    for (int k = 0; k < launch->pointer_count; k++) {  // so many bytes behind a tensor's place as stand there: mostly none
        uint64_t place;
        memcpy(&place, to + launch->pointers[k].at, 8);
        place += call->places[launch->pointers[k].which];
        memcpy(to + launch->pointers[k].at, &place, 8);
    }
    for (int k = 0; k < launch->number_count; k++) {
        const Fill *f = &launch->numbers[k];
        const int64_t *from = &call->numbers[f->which];
        if (f->code == 'f') {  // a double rounded once to f32
            double wide;
            memcpy(&wide, from, 8);
            float x = (float)wide;
            memcpy(to + f->at, &x, 4);
        } else {
            memcpy(to + f->at, from, f->code);  // bytes: a double, or the low ones of an integer, which wraps
        }
    }
    for (int k = 0; k < launch->derived_count; k++) memcpy(to + launch->derived[k].at, derived + launch->derived[k].which, launch->derived[k].code);
}

static int launch_cuda(const Launch *launch, char *arguments, void *stream) {
    const unsigned *g = launch->grid, *b = launch->block;
    void *parameters[PARAMETERS];
    for (int k = 0; k < launch->parameter_count; k++) parameters[k] = arguments + launch->parameters[k];
    if (launch->cluster <= 1 && !launch->follows)
        return torch.launch(launch->function, g[0], g[1], g[2], b[0], b[1], b[2], launch->shared, stream, parameters, NULL);
    LaunchAttribute asked[2];  // 4: a cluster's size; 6: programmatic stream serialization
    unsigned count = 0;
    if (launch->cluster > 1) asked[count++] = (LaunchAttribute){.id = 4, .value = {launch->cluster, 1, 1}};
    if (launch->follows) asked[count++] = (LaunchAttribute){.id = 6, .value = {1}};
    LaunchConfig config = {{g[0], g[1], g[2]}, {b[0], b[1], b[2]}, launch->shared, stream, asked, count};
    return torch.launch_ex(&config, launch->function, parameters, NULL);
}

#if defined(__x86_64__) && !defined(_WIN32)
// A function of any integers, pointers and doubles: the first six and eight travel in registers, whatever their order, the others
// in order on the stack, where a struct by value lies just so.  Registers and words that it has no parameter for do no harm.
#define CALL_WITH(n) do { \
        typedef struct { uint64_t words[n]; } Stack; \
        typedef void (*Function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, double, double, double, double, double, double, double, double, Stack); \
        Stack stack; \
        memcpy(stack.words, words + REGISTERS, sizeof stack); \
        ((Function)launch->function)(words[0], words[1], words[2], words[3], words[4], words[5], \
            floats[0], floats[1], floats[2], floats[3], floats[4], floats[5], floats[6], floats[7], stack); \
    } while (0)

static void launch_cpu(const Launch *launch, const uint64_t *words) {
    double floats[8];
    memcpy(floats, words + 6, sizeof floats);
    if (launch->stack <= 8) CALL_WITH(8);
    else if (launch->stack <= 32) CALL_WITH(32);
    else CALL_WITH(STACK);
}
#define CPU_CALLS 1
#else
static void launch_cpu(const Launch *launch, const uint64_t *words) { (void)launch, (void)words; }
#define CPU_CALLS 0
#endif

// Runs a variant's launches on places that are filled in; the number of a CUDA error, 0 for none.
static int run(const Plan *plan, const Variant *variant, const Call *call, const char *derived, int *done) {
    void *stream = NULL;
    int status = 0;
    *done = 0;
    if (plan->device >= 0 && (status = torch.current_stream(plan->device, &stream))) return status;
    for (int k = 0; k < variant->count && !status; k++, *done += !status) {
        const Launch *launch = &variant->launches[k];
        uint64_t arguments[BYTES / 8];
        fill((char *)arguments, launch, call, derived);
        PyThreadState *thread = plan->release ? PyEval_SaveThread() : NULL;
        if (launch->cuda) status = launch_cuda(launch, (char *)arguments, stream);
        else launch_cpu(launch, arguments);
        if (thread) PyEval_RestoreThread(thread);
    }
    return status;
}

// The numbers of the host's arithmetic, as bytes; borrowed, or NULL with an exception.
static PyObject *derive(Fast *self, PyObject *function, const Call *call) {
    size_t size = sizeof(int64_t) * (size_t)self->numbers;
    if (self->derive == function && self->derived && !memcmp(self->derived_from, call->numbers, size)) return self->derived;
    PyObject *values = PyTuple_New(self->numbers);
    for (int k = 0, n = 0; values && k < self->count; k++) {
        if (self->kinds[k] == 't') continue;
        double x;
        memcpy(&x, &call->numbers[n], sizeof x);
        PyObject *value = self->kinds[k] == 'f' ? PyFloat_FromDouble(x) : PyLong_FromLongLong(call->numbers[n]);
        if (!value) Py_CLEAR(values);
        else PyTuple_SET_ITEM(values, n++, value);
    }
    PyObject *derived = values ? PyObject_CallOneArg(function, values) : NULL;
    Py_XDECREF(values);
    if (!derived || !PyBytes_CheckExact(derived)) {
        Py_XDECREF(derived);
        return NULL;
    }
    Py_INCREF(function);
    Py_XSETREF(self->derive, function);
    Py_XSETREF(self->derived, derived);
    memcpy(self->derived_from, call->numbers, size);
    return derived;
}

// The results of a call of a plan; NULL where it cannot run so (without an exception), or failed (with one).
static PyObject *execute(Fast *self, Plan *plan, Call *call) {
    PyObject *made[TENSORS], *result = NULL, *derived = NULL;
    int count = plan->tensors, fresh = 0, done;
    for (; fresh < plan->make_count; fresh++, count++)
        if (!(made[fresh] = make(&plan->makes[fresh], plan->allocate, &call->places[count]))) goto end;
    Variant *variant = choose(plan, call, count, self->numbers);
    if (!variant) goto end;
    for (int k = 0; k < variant->make_count; k++, fresh++, count++)
        if (!(made[fresh] = make(&variant->makes[k], plan->allocate, &call->places[count]))) goto end;
    if (variant->derive) {
        if (!(derived = derive(self, variant->derive, call))) goto end;
        Py_INCREF(derived);
    }
    if (run(plan, variant, call, derived ? PyBytes_AS_STRING(derived) : NULL, &done)) {
        if (done) PyErr_SetString(PyExc_RuntimeError, "CUDA: a later launch of a kernel failed");
        goto end;  // else the slow way fails and says why
    }
    for (int k = 0; k < plan->tensors; k++)
        if (plan->written >> k & 1) torch.bump_version(handle(call->tensors[k]));
    if (call->out || !plan->results) {
        result = !call->out ? Py_None : PyTuple_CheckExact(call->out) && self->fresh == 1 ? PyTuple_GET_ITEM(call->out, 0) : call->out;
        Py_INCREF(result);
    } else if (plan->results == 1) {
        result = made[0];
        Py_INCREF(result);
    } else if ((result = PyTuple_New(plan->results))) {
        for (int k = 0; k < plan->results; k++) {
            Py_INCREF(made[k]);
            PyTuple_SET_ITEM(result, k, made[k]);
        }
    }
end:
    while (fresh > 0) Py_DECREF(made[--fresh]);
    Py_XDECREF(derived);
    return result;
}

static PyObject *fast_try(Fast *self, PyObject *args, PyObject *kwargs) {
    Call call;
    if (!self->plans || !ordinary() || !read_call(self, &call, args, kwargs)) return NULL;
    Plan *plan = find(self, &call);
    if (!plan || !may_run(plan, &call)) return NULL;
    plan->references++;  // allocation may collect garbage, and that run anything
    PyObject *result = execute(self, plan, &call);
    release_plan(plan);
    return result;
}
