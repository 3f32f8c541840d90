// The repeated calls of a kernel: what a first call worked out is compared, filled in and launched, without Python.
//
// In: the arguments of a call, and the plans and variants that earlier calls of the same kernel left (kgen/runtime/fast.py makes
// them).  Out: the call's results; or nothing, where no plan fits or anything is out of the ordinary, and the call goes the way
// that it would without this file.
//
// A plan belongs to a key: target, and each tensor's dispatch keys (which say whether it is plain, on a device, negated, an
// inference tensor ...), dtype, device, sizes and strides.  A variant of it belongs to the tensors' places within 16 bytes and to
// the numbers that its launches were prepared for.  Torch's headers are not needed: tensors are read through the C functions
// that torch keeps stable for compiled models (aoti_torch_*); what those lack comes from functions found by name, and from two
// places in memory that fast.py finds and tries before anything is called.

#include "fastcall.h"

// -------------------------------------------------------------------------------------------------- what calls leave behind

static void *array(Py_ssize_t count, size_t size) {
    void *made = PyMem_Calloc((size_t)(count > 0 ? count : 1), size);
    if (!made) PyErr_NoMemory();
    return made;
}

// (shape, strides, dtype, large) for each new tensor.
static bool read_makes(PyObject *given, Make **makes, int *count) {
    Py_ssize_t n = PyTuple_GET_SIZE(given);
    if (!(*makes = array(n, sizeof(Make)))) return false;
    for (; *count < n; ++*count) {
        Make *to = *makes + *count;
        int large;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, *count), "O!O!Op", &PyTuple_Type, &to->shape, &PyTuple_Type, &to->strides, &to->dtype, &large)) {
            to->shape = to->strides = to->dtype = NULL;
            return false;
        }
        to->large = large;
        Py_INCREF(to->shape), Py_INCREF(to->strides), Py_INCREF(to->dtype);
    }
    return true;
}

// ((at, which, code), ...)
static bool read_fills(PyObject *given, Fill **fills, int *count) {
    *count = (int)PyTuple_GET_SIZE(given);
    if (!(*fills = array(*count, sizeof(Fill)))) return false;
    for (int k = 0; k < *count; k++)
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, k), "III", &(*fills)[k].at, &(*fills)[k].which, &(*fills)[k].code)) return false;
    return true;
}

// (cuda, function, grid, block, shared, cluster, arguments, where parameters begin or how many words lie on the stack, fills ..., follows)
static bool read_launch(PyObject *given, Launch *to) {
    unsigned long long function;
    Py_buffer arguments;
    PyObject *parameters, *pointers, *numbers, *derived;
    if (!PyArg_ParseTuple(given, "pK(III)(III)IIy*O!iO!O!O!p", &to->cuda, &function, &to->grid[0], &to->grid[1], &to->grid[2], &to->block[0],
                          &to->block[1], &to->block[2], &to->shared, &to->cluster, &arguments, &PyTuple_Type, &parameters, &to->stack,
                          &PyTuple_Type, &pointers, &PyTuple_Type, &numbers, &PyTuple_Type, &derived, &to->follows))
        return false;
    to->function = (void *)(uintptr_t)function;
    Py_ssize_t size = to->cuda ? arguments.len : (Py_ssize_t)sizeof(uint64_t) * (REGISTERS + STACK);
    to->size = (int)size;
    if (arguments.len <= size && size <= BYTES && (to->arguments = array(size, 1))) memcpy(to->arguments, arguments.buf, (size_t)arguments.len);
    PyBuffer_Release(&arguments);
    if (!to->arguments || to->stack > STACK || (!to->cuda && !CPU_CALLS)) return false;
    if (to->cuda && !(to->cluster > 1 || to->follows ? (void *)torch.launch_ex : (void *)torch.launch)) return false;
    Py_ssize_t count = PyTuple_GET_SIZE(parameters);
    if (count > PARAMETERS || !(to->parameters = array(count, sizeof *to->parameters))) return false;
    to->parameter_count = (int)count;
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(parameters, k));
        if (at < 0 || at >= size) return false;
        to->parameters[k] = (uint32_t)at;
    }
    if (!read_fills(pointers, &to->pointers, &to->pointer_count) || !read_fills(numbers, &to->numbers, &to->number_count)) return false;
    if (!read_fills(derived, &to->derived, &to->derived_count)) return false;
    for (int k = 0; k < to->pointer_count; k++)
        if (to->pointers[k].at + 8 > size || to->pointers[k].which >= TENSORS) return false;
    for (int k = 0; k < to->number_count; k++)
        if (to->numbers[k].at + 8 > size || to->numbers[k].which >= NUMBERS || (to->numbers[k].code > 8 && to->numbers[k].code != 'f')) return false;
    for (int k = 0; k < to->derived_count; k++)
        if (to->derived[k].at + to->derived[k].code > size) return false;
    return true;
}

static PyObject *said(bool kept) {
    if (!kept && PyErr_Occurred()) return NULL;
    return PyBool_FromLong(kept);
}

static void forget(Fast *self) {
    for (int k = 0; k < BUCKETS; k++) {
        while (self->table[k]) {
            Plan *plan = self->table[k];
            self->table[k] = plan->next;
            release_plan(plan);
        }
    }
    self->plans = 0;
}

// Fast.plan(args, kwargs, device type, device, context, makes, results, allocate, pairs, empty, written, aligned, release): keeps
// the plan of these arguments.  Returns whether it could.
static PyObject *fast_plan(Fast *self, PyObject *given) {
    PyObject *args, *kwargs, *makes, *allocate, *pairs;
    int type, device, results, aligned, release;
    unsigned long long context, empty, written;
    if (!PyArg_ParseTuple(given, "O!O!iiKO!iOO!KKpp", &PyTuple_Type, &args, &PyDict_Type, &kwargs, &type, &device, &context, &PyTuple_Type,
                          &makes, &results, &allocate, &PyTuple_Type, &pairs, &empty, &written, &aligned, &release))
        return NULL;
    Call call;
    if (device >= 0 && !(torch.current_stream && torch.current_context)) return said(false);
    if (!arrange(self, &call, args, kwargs)) return said(false);
    for (int k = 0; k < self->count + 1; k++) {  // kinds of tensors seen for the first time; whoever calls this has looked at them
        PyObject *tensor = k < self->count ? call.values[k] : call.out;
        Py_ssize_t several = k == self->count && tensor && PyTuple_CheckExact(tensor) ? PyTuple_GET_SIZE(tensor) : -1;
        for (Py_ssize_t j = 0; tensor && j < (several < 0 ? 1 : several); j++) {
            PyObject *one = several < 0 ? tensor : PyTuple_GET_ITEM(tensor, j);
            if (is_plain_type(one) && implementation(one)) learn_kind(dispatch_keys(one));
        }
    }
    if (!read_call(self, &call, args, kwargs) || call.tensor_count + PyTuple_GET_SIZE(makes) > TENSORS) return said(false);
    if (find(self, &call)) return said(true);
    Plan *plan = array(1, sizeof(Plan));
    if (!plan) return NULL;
    plan->references = 1;
    plan->words = call.words;
    plan->hash = hash_of(call.key, call.words);
    plan->tensors = call.tensor_count;
    plan->given = self->tensors;
    plan->device_type = type;
    plan->device = device;
    plan->context = (void *)(uintptr_t)context;
    plan->results = results;
    plan->empty = empty;
    plan->written = written;
    plan->aligned = aligned;
    plan->release = release;
    Py_INCREF(plan->allocate = allocate);
    plan->pair_count = (int)PyTuple_GET_SIZE(pairs);
    plan->key = array(call.words, sizeof(int64_t));
    plan->pairs = array(plan->pair_count, sizeof *plan->pairs);
    plan->sizes = array(plan->pair_count, sizeof *plan->sizes);
    bool read = plan->key && plan->pairs && plan->sizes && read_makes(makes, &plan->makes, &plan->make_count);
    for (int k = 0; read && k < plan->pair_count; k++) {
        int *pair = plan->pairs[k];
        long long first, second;
        read = PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, k), "iiLLp", &pair[0], &pair[1], &first, &second, &pair[2]);
        plan->sizes[k][0] = first, plan->sizes[k][1] = second;
        read = read && pair[0] >= 0 && pair[0] < plan->tensors && pair[1] >= 0 && pair[1] < plan->tensors;
    }
    if (!read || plan->results > plan->make_count) {
        plan->pair_count = 0;
        release_plan(plan);
        return said(false);
    }
    memcpy(plan->key, call.key, sizeof(int64_t) * (size_t)call.words);
    if (self->plans >= KEPT) forget(self);
    plan->next = self->table[plan->hash % BUCKETS];
    self->table[plan->hash % BUCKETS] = plan;
    self->plans++;
    return said(true);
}

// Fast.variant(args, kwargs, made, compared, derive, makes, launches, owner): adds a variant to the plan of these arguments, whose call
// made these tensors.  Returns whether it could.
static PyObject *fast_variant(Fast *self, PyObject *given) {
    PyObject *args, *kwargs, *made, *derive, *makes, *launches, *owner;
    unsigned long long compared;
    if (!PyArg_ParseTuple(given, "O!O!O!KOO!O!O", &PyTuple_Type, &args, &PyDict_Type, &kwargs, &PyTuple_Type, &made, &compared, &derive,
                          &PyTuple_Type, &makes, &PyTuple_Type, &launches, &owner))
        return NULL;
    Call call;
    Plan *plan = read_call(self, &call, args, kwargs) ? find(self, &call) : NULL;
    if (!plan || PyTuple_GET_SIZE(made) != plan->make_count || call.tensor_count + plan->make_count + PyTuple_GET_SIZE(makes) > TENSORS)
        return said(false);
    int places = call.tensor_count;
    for (int k = 0; k < plan->make_count; k++) {
        void *place = NULL;
        PyObject *tensor = PyTuple_GET_ITEM(made, k);
        if (!is_plain_type(tensor) || torch.get_data_ptr(handle(tensor), &place)) return said(false);
        call.places[places++] = (uintptr_t)place;
    }
    if (choose(plan, &call, places, self->numbers)) return said(true);
    Variant *variant = array(1, sizeof(Variant));
    if (!variant) return NULL;
    if (plan->aligned)
        for (int k = 0; k < places; k++) variant->places[k / 16] |= (call.places[k] & 15) << (k % 16 * 4);
    variant->compared = compared;
    memcpy(variant->numbers, call.numbers, sizeof call.numbers);
    if (derive != Py_None) Py_INCREF(variant->derive = derive);
    Py_INCREF(variant->owner = owner);
    bool read = (variant->launches = array(PyTuple_GET_SIZE(launches), sizeof(Launch))) && read_makes(makes, &variant->makes, &variant->make_count);
    for (; read && variant->count < PyTuple_GET_SIZE(launches); variant->count++)
        if (!read_launch(PyTuple_GET_ITEM(launches, variant->count), &variant->launches[variant->count])) {
            variant->count++;
            read = false;
            break;
        }
    if (!read || plan->references > 1) {  // running: its variants stay as they are
        release_variant(variant);
        return said(false);
    }
    if (plan->variant_count < VARIANTS) {
        plan->variants[plan->variant_count++] = variant;
    } else {
        release_variant(plan->variants[plan->oldest]);
        plan->variants[plan->oldest] = variant;
        plan->oldest = (plan->oldest + 1) % VARIANTS;
    }
    return said(true);
}

static PyObject *fast_forget(Fast *self, PyObject *unused) {
    (void)unused;
    forget(self);
    Py_RETURN_NONE;
}

// Fast.counts() -> (plans, variants)
static PyObject *fast_counts(Fast *self, PyObject *unused) {
    (void)unused;
    int variants = 0;
    for (int k = 0; k < BUCKETS; k++)
        for (Plan *plan = self->table[k]; plan; plan = plan->next) variants += plan->variant_count;
    return Py_BuildValue("ii", self->plans, variants);
}

// Fast(names, kinds, defaults, fresh results, takes `out`, takes `target`)
static int fast_init(Fast *self, PyObject *args, PyObject *kwargs) {
    PyObject *names, *defaults;
    const char *kinds;
    Py_ssize_t length;
    int fresh, takes_out, takes_target;
    (void)kwargs;
    if (self->names || !PyArg_ParseTuple(args, "O!s#O!ipp", &PyTuple_Type, &names, &kinds, &length, &PyTuple_Type, &defaults, &fresh, &takes_out, &takes_target))
        return -1;
    if (PyTuple_GET_SIZE(names) != length || PyTuple_GET_SIZE(defaults) != length || length > TENSORS) {
        PyErr_SetString(PyExc_ValueError, "names, kinds and defaults are of different lengths, or too many");
        return -1;
    }
    if (!(self->kinds = array(length + 1, 1))) return -1;
    memcpy(self->kinds, kinds, (size_t)length);
    self->count = (int)length;
    for (int k = 0; k < self->count; k++) *(kinds[k] == 't' ? &self->tensors : &self->numbers) += 1;
    Py_INCREF(self->names = names), Py_INCREF(self->defaults = defaults);
    self->fresh = fresh, self->takes_out = takes_out, self->takes_target = takes_target;
    return 0;
}

static void fast_dealloc(Fast *self) {
    PyTypeObject *type = Py_TYPE(self);
    forget(self);
    Py_XDECREF(self->names), Py_XDECREF(self->defaults), Py_XDECREF(self->derive), Py_XDECREF(self->derived);
    PyMem_Free(self->kinds);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

// Fast.call(args, kwargs): the results, or NotImplemented.
static PyObject *fast_call(Fast *self, PyObject *given) {
    PyObject *args, *kwargs, *result;
    if (!PyArg_ParseTuple(given, "O!O!", &PyTuple_Type, &args, &PyDict_Type, &kwargs)) return NULL;
    result = fast_try(self, args, kwargs);
    if (!result && !PyErr_Occurred()) Py_RETURN_NOTIMPLEMENTED;
    return result;
}

static PyMethodDef fast_methods[] = {
    {"plan", (PyCFunction)fast_plan, METH_VARARGS, NULL},       {"variant", (PyCFunction)fast_variant, METH_VARARGS, NULL},
    {"call", (PyCFunction)fast_call, METH_VARARGS, NULL},       {"forget", (PyCFunction)fast_forget, METH_NOARGS, NULL},
    {"counts", (PyCFunction)fast_counts, METH_NOARGS, NULL},    {0},
};
static PyType_Slot fast_slots[] = {
    {Py_tp_init, fast_init}, {Py_tp_dealloc, fast_dealloc}, {Py_tp_methods, fast_methods}, {Py_tp_new, PyType_GenericNew}, {0},
};
static PyType_Spec fast_spec = {"kgen_fastcall.Fast", sizeof(Fast), 0, Py_TPFLAGS_DEFAULT, fast_slots};
static PyTypeObject *fast_type;

// --------------------------------------------------------------------------------------------------------------- the module

static ternaryfunc slow_call;    // what calls a Kernel without this file: its __call__
static Py_ssize_t kernel_offset; // of a Kernel's Fast

static PyObject *kernel_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *fast = *(PyObject **)((char *)self + kernel_offset);
    if (fast && Py_TYPE(fast) == fast_type) {
        PyObject *result = fast_try((Fast *)fast, args, kwargs);
        if (result || PyErr_Occurred()) return result;
    }
    return slow_call(self, args, kwargs);
}

// install(type, member): calls of the type's instances try the Fast that this slot of theirs holds, and then their __call__.
static PyObject *install(PyObject *module, PyObject *given) {
    PyTypeObject *type;
    PyMemberDescrObject *member;
    (void)module;
    if (!PyArg_ParseTuple(given, "O!O!", &PyType_Type, &type, &PyMemberDescr_Type, &member)) return NULL;
    if (type->tp_call != kernel_call) {
        kernel_offset = member->d_member->offset;
        slow_call = type->tp_call;
        type->tp_call = kernel_call;
    }
    Py_RETURN_NONE;
}

// setup(addresses by name, handle offset, keys offset, Tensor, Parameter, vars(torch.compiler), vars(forward_ad), vars(calls))
static PyObject *setup(PyObject *module, PyObject *given) {
    PyObject *found;
    (void)module;
    if (!PyArg_ParseTuple(given, "O!nnO!O!O!O!O!", &PyDict_Type, &found, &handle_offset, &keys_offset, &PyType_Type, &tensor_type, &PyType_Type,
                          &parameter_type, &PyDict_Type, &compiler, &PyDict_Type, &forward_ad, &PyDict_Type, &calls))
        return NULL;
    for (size_t k = 0; k < sizeof FUNCTIONS / sizeof *FUNCTIONS; k++) {
        PyObject *address = PyDict_GetItemString(found, FUNCTIONS[k].name);
        if (address) *FUNCTIONS[k].place = PyLong_AsVoidPtr(address);
    }
    if (!(is_compiling = PyDict_GetItem(compiler, s_is_compiling))) {
        PyErr_SetString(PyExc_ValueError, "there is no torch.compiler.is_compiling");
        return NULL;
    }
    Py_INCREF(tensor_type), Py_INCREF(parameter_type), Py_INCREF(compiler), Py_INCREF(forward_ad), Py_INCREF(calls), Py_INCREF(is_compiling);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

// read(tensor) -> (dispatch keys, dtype, device, sizes, strides, place, requires grad): what setup's tensors are tried with.
static PyObject *read_one(PyObject *module, PyObject *tensor) {
    (void)module;
    if (!is_plain_type(tensor)) Py_RETURN_NONE;
    void *own = handle(tensor), *place;
    int64_t rank, *sizes, *strides;
    int32_t dtype, device;
    if (torch.get_dim(own, &rank) || torch.get_dtype(own, &dtype) || torch.get_device_index(own, &device) || torch.get_sizes(own, &sizes) ||
        torch.get_strides(own, &strides) || torch.get_data_ptr(own, &place))
        Py_RETURN_NONE;
    PyObject *shape = PyTuple_New(rank), *steps = PyTuple_New(rank);
    for (int64_t d = 0; d < rank; d++) {
        PyTuple_SET_ITEM(shape, d, PyLong_FromLongLong(sizes[d]));
        PyTuple_SET_ITEM(steps, d, PyLong_FromLongLong(strides[d]));
    }
    return Py_BuildValue("KiiNNKO", (unsigned long long)dispatch_keys(tensor), dtype, device, shape, steps, (unsigned long long)(uintptr_t)place,
                         torch.requires_grad(implementation(tensor)) ? Py_True : Py_False);
}

// describe(list of tensors, learn) -> (key, places): what they are, and where, 8 bytes each; None where one is not plain, is of no known
// kind, or requires grad while grad mode is on.  `learn`: their kinds are known from now on; whoever says so has looked at them.
static PyObject *describe(PyObject *module, PyObject *given) {
    enum { MOST = 2 + 2 * 64 };  // words of a tensor
    PyObject *tensors;
    int learn;
    (void)module;
    if (!PyArg_ParseTuple(given, "O!p", &PyList_Type, &tensors, &learn)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(tensors), words = 0, room = 8 * count + MOST;
    PyObject *key = NULL, *places = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uintptr_t));
    int64_t *found = PyMem_Malloc((size_t)room * sizeof *found);
    bool plain = places && found, tracked = torch.grad_mode();
    for (Py_ssize_t k = 0; plain && k < count; k++) {
        PyObject *tensor = PyList_GET_ITEM(tensors, k);
        if (room - words < MOST) {
            int64_t *larger = PyMem_Realloc(found, (size_t)(room *= 2) * sizeof *found);
            plain = larger != NULL;
            if (!plain) break;
            found = larger;
        }
        if (learn && is_plain_type(tensor) && implementation(tensor)) learn_kind(dispatch_keys(tensor));
        int more = read_words(tensor, found + words, MOST, (uintptr_t *)(void *)PyBytes_AS_STRING(places) + k);
        plain = more > 0 && !(tracked && torch.requires_grad(implementation(tensor)));
        words += more;
    }
    if (plain) key = PyBytes_FromStringAndSize((char *)found, words * (Py_ssize_t)sizeof *found);
    PyObject *result = key ? PyTuple_Pack(2, key, places) : NULL;
    PyMem_Free(found);
    Py_XDECREF(key), Py_XDECREF(places);
    if (result || PyErr_Occurred()) return result;
    Py_RETURN_NONE;
}

typedef struct { uint64_t start, end; int64_t written; } Span;

static int by_start(const void *a, const void *b) {
    const Span *first = a, *second = b;
    return first->start < second->start ? -1 : first->start > second->start;
}

// apart(places, spans, pairs) -> whether nothing that is written overlaps anything else: `spans` are (which place, bytes, whether written),
// and of each of `pairs` (a, b) that lie in one place b does not count.  All are buffers of 64-bit integers.
static PyObject *apart(PyObject *module, PyObject *given) {
    Py_buffer places, spans, pairs;
    (void)module;
    if (!PyArg_ParseTuple(given, "y*y*y*", &places, &spans, &pairs)) return NULL;
    const uint64_t *at = places.buf;
    const int64_t *span = spans.buf, *pair = pairs.buf;
    const Py_ssize_t count = places.len / 8, most = spans.len / 24;
    Span *found = PyMem_Malloc((size_t)(most + 1) * sizeof *found);
    char *joined = PyMem_Calloc((size_t)count + 1, 1);
    bool clear = found && joined;
    for (Py_ssize_t k = 0; clear && k < pairs.len / 16; k++)
        if (at[pair[2 * k]] == at[pair[2 * k + 1]]) joined[pair[2 * k + 1]] = 1;
    Py_ssize_t n = 0;
    for (Py_ssize_t k = 0; clear && k < most; k++) {
        const int64_t *own = span + 3 * k;
        if (!joined[own[0]]) found[n++] = (Span){at[own[0]], at[own[0]] + (uint64_t)own[1], own[2]};
    }
    if (clear) qsort(found, (size_t)n, sizeof *found, by_start);
    uint64_t read = 0, wrote = 0;  // where those that are read or written end
    for (Py_ssize_t k = 0; clear && k < n; k++) {
        clear = found[k].start >= wrote && (!found[k].written || found[k].start >= read);
        if (found[k].end > read) read = found[k].end;
        if (found[k].written && found[k].end > wrote) wrote = found[k].end;
    }
    PyMem_Free(found), PyMem_Free(joined);
    PyBuffer_Release(&places), PyBuffer_Release(&spans), PyBuffer_Release(&pairs);
    return said(clear);
}

// modes() -> (ordinary, grad mode, autocast on the CPU)
static PyObject *modes(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return Py_BuildValue("OOO", ordinary() ? Py_True : Py_False, torch.grad_mode() ? Py_True : Py_False, torch.autocast(0) ? Py_True : Py_False);
}

static PyObject *bump(PyObject *module, PyObject *tensor) {
    (void)module;
    if (is_plain_type(tensor)) torch.bump_version(handle(tensor));
    Py_RETURN_NONE;
}

// invoke(launch): runs a CPU launch, as tests do.
static PyObject *invoke(PyObject *module, PyObject *given) {
    (void)module;
    Launch launch = {0};
    bool read = PyTuple_CheckExact(given) && read_launch(given, &launch) && !launch.cuda;
    if (read) launch_cpu(&launch, (const uint64_t *)(void *)launch.arguments);
    PyMem_Free(launch.arguments), PyMem_Free(launch.parameters);
    PyMem_Free(launch.pointers), PyMem_Free(launch.numbers), PyMem_Free(launch.derived);
    return said(read);
}

static PyMethodDef methods[] = {
    {"setup", setup, METH_VARARGS, NULL}, {"install", install, METH_VARARGS, NULL}, {"read", read_one, METH_O, NULL},
    {"modes", modes, METH_NOARGS, NULL},  {"bump", bump, METH_O, NULL},             {"invoke", invoke, METH_O, NULL},
    {"describe", describe, METH_VARARGS, NULL}, {"apart", apart, METH_VARARGS, NULL}, {0},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kgen_fastcall", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_kgen_fastcall(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    s_compiling_flag = PyUnicode_InternFromString("_is_compiling_flag");
    s_is_compiling = PyUnicode_InternFromString("is_compiling");
    s_level = PyUnicode_InternFromString("_current_level");
    s_out = PyUnicode_InternFromString("out");
    s_target = PyUnicode_InternFromString("target");
    s_advise = PyUnicode_InternFromString("advise");
    fast_type = (PyTypeObject *)PyType_FromSpec(&fast_spec);
    if (!fast_type || PyModule_AddObjectRef(module, "Fast", (PyObject *)fast_type) || PyModule_AddIntConstant(module, "STACK", STACK) ||
        PyModule_AddIntConstant(module, "CPU_CALLS", CPU_CALLS) || PyModule_AddIntConstant(module, "TENSORS", TENSORS) ||
        PyModule_AddIntConstant(module, "NUMBERS", NUMBERS)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
