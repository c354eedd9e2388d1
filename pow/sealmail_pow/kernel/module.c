/* The Python module sealmail_pow._native: arguments in, searches without the interpreter's lock,
 * nonces out. What is checked here is what memory safety needs; the rest is the caller's. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "batch.h"
#include "kernels.h"
#include "search.h"
#include "verify.h"
#include "weighing.h"

enum {
    MOST_BITS = 256,
    /* The longest nonce that a stamp may hold. */
    MOST_STAMP_NONCE = 64,
    /* Hashing more bytes than this for one stamp is worth letting other threads run, or asking
     * the caller. */
    CALLERS_DATA = 4 * 1024,
    /* A piece of a stream is worth it sooner: it is long as a whole. */
    WORTH_THE_LOCK = 2 * 1024,
};

/* What a search needs to talk to the caller while the lock is released. */
struct listener {
    PyObject *look;
    PyThreadState *thread;
};

/* Ask whether to go on: False, or an exception, ends the search. */
static bool look(void *argument, uint64_t hashes)
{
    struct listener *listener = argument;
    PyEval_RestoreThread(listener->thread);
    bool go_on = PyErr_CheckSignals() == 0;
    if (go_on && listener->look != Py_None) {
        PyObject *answer = PyObject_CallFunction(listener->look, "K", (unsigned long long)hashes);
        go_on = answer != NULL;
        Py_XDECREF(answer);
    }
    listener->thread = PyEval_SaveThread();
    return go_on;
}

static const struct kernel *chosen_kernel(const char *name, Py_ssize_t length)
{
    if (name == NULL)
        return fastest_kernel(length > MOST_KEPT_BLOCKS * BLOCK_BYTES);
    const struct kernel *kernel = kernel_named(name);
    if (kernel == NULL)
        PyErr_Format(PyExc_ValueError, "this machine has no kernel named %s", name);
    return kernel;
}

static bool check(bool holds, const char *complaint)
{
    if (!holds)
        PyErr_SetString(PyExc_ValueError, complaint);
    return holds;
}

static bool is_salt(const char *salt, Py_ssize_t length)
{
    return check(length == MOST_NONCE && strspn(salt, "0123456789abcdef") >= MOST_NONCE,
                 "the salt is sixteen lower-case hex digits");
}

static PyObject *solution_or_error(enum outcome outcome, const struct solution *solution,
                                   unsigned count)
{
    if (PyErr_Occurred())
        return NULL;
    if (outcome == OUT_OF_MEMORY) {
        PyErr_SetString(PyExc_MemoryError, "the search needs more memory than it may take");
        return NULL;
    }
    if (outcome == STOPPED) {
        PyErr_SetString(PyExc_RuntimeError, "the search was stopped");
        return NULL;
    }
    PyObject *nonces = PyTuple_New(count);
    if (nonces == NULL)
        return NULL;
    for (unsigned which = 0; which < count; which++) {
        PyObject *nonce = PyUnicode_FromStringAndSize(solution->nonces[which],
                                                      (Py_ssize_t)solution->nonce_length);
        if (nonce == NULL) {
            Py_DECREF(nonces);
            return NULL;
        }
        PyTuple_SET_ITEM(nonces, which, nonce);
    }
    return Py_BuildValue("NK", nonces, (unsigned long long)solution->hashes);
}

static PyObject *walk(PyObject *module, PyObject *args, PyObject *keywords)
{
    (void)module;
    static char *names[] = {"data", "bits", "salt", "seed", "threads", "look", "kernel", NULL};
    Py_buffer data;
    unsigned bits, threads;
    const char *salt, *kernel_name;
    Py_ssize_t salt_length;
    unsigned long long seed;
    struct listener listener;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*Is#KIOz:walk", names, &data, &bits, &salt,
                                     &salt_length, &seed, &threads, &listener.look, &kernel_name))
        return NULL;
    PyObject *result = NULL;
    const struct kernel *kernel = chosen_kernel(kernel_name, data.len);
    if (kernel != NULL && is_salt(salt, salt_length) &&
        check(bits >= 16 && bits <= MOST_BITS, "a walk is for 16 to 256 bits") &&
        check(threads >= 1 && threads <= MOST_THREADS, "a walk has 1 to 256 threads")) {
        struct watch watch;
        struct solution solution;
        struct task task = {kernel, data.buf, (size_t)data.len, bits, salt, &watch};
        begin_watch(&watch, look, &listener);
        listener.thread = PyEval_SaveThread();
        enum outcome outcome = search_by_walking(&task, threads, seed, &solution);
        PyEval_RestoreThread(listener.thread);
        result = solution_or_error(outcome, &solution, 2);
    }
    PyBuffer_Release(&data);
    return result;
}

static PyObject *count(PyObject *module, PyObject *args, PyObject *keywords)
{
    (void)module;
    static char *names[] = {"data", "bits", "nonces", "expected", "salt", "look", "kernel", NULL};
    Py_buffer data;
    unsigned bits, nonces;
    double expected;
    const char *salt, *kernel_name;
    Py_ssize_t salt_length;
    struct listener listener;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*IIdz#Oz:count", names, &data, &bits,
                                     &nonces, &expected, &salt, &salt_length, &listener.look,
                                     &kernel_name))
        return NULL;
    PyObject *result = NULL;
    const struct kernel *kernel = chosen_kernel(kernel_name, data.len);
    if (kernel != NULL && (salt == NULL || is_salt(salt, salt_length)) &&
        check(bits <= MOST_BITS, "a prefix has at most 256 bits") &&
        check(nonces >= 2 && nonces <= MOST_NONCES, "a stamp has 2 to 16 nonces")) {
        struct watch watch;
        struct solution solution;
        struct task task = {kernel, data.buf, (size_t)data.len, bits, salt, &watch};
        begin_watch(&watch, look, &listener);
        listener.thread = PyEval_SaveThread();
        enum outcome outcome = search_by_counting(&task, nonces, expected, &solution);
        PyEval_RestoreThread(listener.thread);
        result = solution_or_error(outcome, &solution, nonces);
    }
    PyBuffer_Release(&data);
    return result;
}

/* The nonces of a stamp, borrowed from its tuple; false, with an exception set, if it is not a
 * tuple of 2 to 16 short ASCII texts. */
static bool read_nonces(PyObject *tuple, struct text nonces[MOST_NONCES], size_t *count)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) < 2 ||
        PyTuple_GET_SIZE(tuple) > MOST_NONCES)
        return check(false, "a stamp has a tuple of 2 to 16 nonces");
    *count = (size_t)PyTuple_GET_SIZE(tuple);
    for (size_t which = 0; which < *count; which++) {
        PyObject *nonce = PyTuple_GET_ITEM(tuple, (Py_ssize_t)which);
        if (!PyUnicode_Check(nonce) || !PyUnicode_IS_COMPACT_ASCII(nonce) ||
            PyUnicode_GET_LENGTH(nonce) > MOST_STAMP_NONCE)
            return check(false, "a nonce is at most 64 ASCII characters");
        nonces[which].bytes = PyUnicode_1BYTE_DATA(nonce);
        nonces[which].length = (size_t)PyUnicode_GET_LENGTH(nonce);
    }
    return true;
}

/* The verdicts of a batch so far, and what a good one takes. */
struct verdicts {
    PyObject *list;
    unsigned least_bits;
};

static void put_verdict(void *listener, size_t which, unsigned bits)
{
    struct verdicts *verdicts = listener;
    PyObject *verdict = bits >= verdicts->least_bits ? Py_True : Py_False;
    Py_INCREF(verdict);
    PyList_SetItem(verdicts->list, (Py_ssize_t)which, verdict);
}

/* Ask the caller for the bits of a stamp; below zero, with an exception set if there is
 * no answer. */
static long bits_by_caller(PyObject *level, PyObject *pair)
{
    PyObject *told = PyObject_CallFunctionObjArgs(level, PyTuple_GET_ITEM(pair, 0),
                                                  PyTuple_GET_ITEM(pair, 1), NULL);
    long bits = told == NULL ? -1 : PyLong_AsLong(told);
    Py_XDECREF(told);
    return bits;
}

/* Weigh a stamp that fits no batch. Without SHA instructions of ours one that is long is the
 * caller's, whose library may have better ones. */
static bool weigh_alone(struct verdicts *verdicts, size_t which, const struct text *nonces,
                        size_t count, PyObject *pair, struct text data, PyObject *level)
{
    long bits;
    if (data.length <= CALLERS_DATA) {
        bits = (long)shared_bits(nonces, count, data);
    } else if (!has_pairs()) {
        bits = bits_by_caller(level, pair);
    } else {
        Py_BEGIN_ALLOW_THREADS
        bits = (long)shared_bits(nonces, count, data);
        Py_END_ALLOW_THREADS
    }
    if (bits < 0)
        return false;
    put_verdict(verdicts, which, (unsigned)bits);
    return true;
}

/* Weigh the next stamp, now or with the batch; its verdict is the list's next. */
static bool weigh_pair(struct batch *batch, struct verdicts *verdicts, PyObject *pair,
                       PyObject *nonces, Py_ssize_t least_nonces, PyObject *level)
{
    struct text texts[MOST_NONCES];
    size_t count, which = (size_t)PyList_GET_SIZE(verdicts->list);
    Py_buffer view;
    if (PyList_Append(verdicts->list, Py_False) < 0)
        return false;
    if (!PyTuple_Check(nonces) || PyTuple_GET_SIZE(nonces) < least_nonces)
        return true;
    if (!read_nonces(nonces, texts, &count) ||
        PyObject_GetBuffer(PyTuple_GET_ITEM(pair, 0), &view, PyBUF_SIMPLE) < 0)
        return false;
    struct text data = {view.buf, (size_t)view.len};
    bool done = add_to_batch(batch, which, texts, count, data) ||
                weigh_alone(verdicts, which, texts, count, pair, data, level);
    PyBuffer_Release(&view);
    return done;
}

static PyObject *verify_many(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *pairs, *level;
    int least_bits;
    Py_ssize_t least_nonces;
    const char *kernel_name;
    if (!PyArg_ParseTuple(args, "OinOz:verify_many", &pairs, &least_bits, &least_nonces, &level,
                          &kernel_name))
        return NULL;
    const struct kernel *kernel = chosen_kernel(kernel_name, 0);
    if (kernel == NULL)
        return NULL;
    struct verdicts verdicts = {PyList_New(0), least_bits < 0 ? 0 : (unsigned)least_bits};
    struct batch *batch = begin_batch(kernel, put_verdict, &verdicts);
    PyObject *iterator = PyObject_GetIter(pairs), *pair = NULL, *nonces = NULL;
    PyObject *attribute = PyUnicode_InternFromString("nonces");
    bool failed = iterator == NULL || verdicts.list == NULL || attribute == NULL;
    if (batch == NULL && !failed) {
        PyErr_NoMemory();
        failed = true;
    }
    while (!failed && (pair = PyIter_Next(iterator)) != NULL) {
        failed = !check(PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2,
                        "what is verified is pairs of data and stamp");
        if (!failed) {
            nonces = PyObject_GetAttr(PyTuple_GET_ITEM(pair, 1), attribute);
            failed = nonces == NULL ||
                     !weigh_pair(batch, &verdicts, pair, nonces, least_nonces, level);
        }
        Py_CLEAR(nonces);
        Py_CLEAR(pair);
    }
    failed = failed || PyErr_Occurred();
    if (failed)
        Py_CLEAR(verdicts.list);
    else
        settle_batch(batch);
    free_batch(batch);
    Py_XDECREF(iterator);
    Py_XDECREF(attribute);
    return verdicts.list;
}

/* A stamp that is weighed while its bytes come; by one thread at a time. */
struct py_weighing {
    PyObject_HEAD
    bool busy;
    struct weighing weighing;
};

static PyObject *new_weighing(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *tuple;
    struct text nonces[MOST_NONCES];
    size_t count;
    if (keywords != NULL && PyDict_GET_SIZE(keywords) > 0) {
        check(false, "a weighing is made of nonces alone");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O:Weighing", &tuple) || !read_nonces(tuple, nonces, &count))
        return NULL;
    struct py_weighing *self = (struct py_weighing *)type->tp_alloc(type, 0);
    if (self != NULL)
        begin_weighing(&self->weighing, nonces, count);
    return (PyObject *)self;
}

static void free_weighing(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *update_weighing(PyObject *object, PyObject *data)
{
    struct py_weighing *self = (struct py_weighing *)object;
    Py_buffer view;
    if (!check(!self->busy, "another thread weighs at this moment") ||
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    struct text bytes = {view.buf, (size_t)view.len};
    if (view.len > WORTH_THE_LOCK) {
        self->busy = true;
        Py_BEGIN_ALLOW_THREADS
        weigh(&self->weighing, bytes);
        Py_END_ALLOW_THREADS
        self->busy = false;
    } else {
        weigh(&self->weighing, bytes);
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyObject *bits_of_weighing(PyObject *object, PyObject *unused)
{
    (void)unused;
    struct py_weighing *self = (struct py_weighing *)object;
    if (!check(!self->busy, "another thread weighs at this moment"))
        return NULL;
    return PyLong_FromUnsignedLong(weighed_bits(&self->weighing));
}

static PyMethodDef weighing_methods[] = {
    {"update", update_weighing, METH_O, NULL},
    {"bits", bits_of_weighing, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot weighing_slots[] = {
    {Py_tp_new, new_weighing},
    {Py_tp_dealloc, free_weighing},
    {Py_tp_methods, weighing_methods},
    {0, NULL},
};

static PyType_Spec weighing_spec = {
    .name = "sealmail_pow._native.Weighing",
    .basicsize = sizeof(struct py_weighing),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = weighing_slots,
};

static PyObject *kernels(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *names = PyList_New(0);
    for (const struct kernel *const *kernel = all_kernels; names && *kernel != NULL; kernel++) {
        if (!(*kernel)->usable())
            continue;
        PyObject *name = PyUnicode_FromString((*kernel)->name);
        if (name == NULL || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *fastest(PyObject *module, PyObject *args)
{
    (void)module;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "n:fastest", &length))
        return NULL;
    return PyUnicode_FromString(chosen_kernel(NULL, length)->name);
}

static bool never(void *listener, uint64_t hashes)
{
    (void)listener, (void)hashes;
    return true;
}

/* Walk all lanes so many steps from places that follow from the first. */
static PyObject *steps(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer data;
    unsigned bits, most;
    unsigned long long place;
    const char *kernel_name;
    if (!PyArg_ParseTuple(args, "zy*IKI:steps", &kernel_name, &data, &bits, &place, &most))
        return NULL;
    PyObject *result = NULL;
    struct message *message = PyMem_Malloc(sizeof *message);
    const struct kernel *kernel = chosen_kernel(kernel_name, data.len);
    if (message != NULL && kernel != NULL && check(bits >= 1 && bits <= 64, "1 to 64 bits")) {
        struct watch watch;
        struct places at;
        struct arrivals seen;
        begin_watch(&watch, never, NULL);
        prepare_walk(message, data.buf, (size_t)data.len, "5a175a175a175a17", bits, 32);
        uint64_t mask = (uint64_t)message->mask_hi << 32 | message->mask_lo;
        for (unsigned lane = 0; lane < kernel->lanes; lane++)
            put_lane(&at, lane, (place + (uint64_t)lane * 0x9e3779b97f4a7c15) & mask);
        Py_BEGIN_ALLOW_THREADS
        for (unsigned done = 0; done < most;)
            done += walk_lanes(kernel, message, &at, most - done, &seen, &watch);
        Py_END_ALLOW_THREADS
        result = PyTuple_New(kernel->lanes);
        for (unsigned lane = 0; result && lane < kernel->lanes; lane++) {
            PyObject *number = PyLong_FromUnsignedLongLong(place_of_lane(&at, lane));
            if (number == NULL)
                Py_CLEAR(result);
            else
                PyTuple_SET_ITEM(result, lane, number);
        }
    }
    PyMem_Free(message);
    PyBuffer_Release(&data);
    return result;
}

static PyMethodDef methods[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_VARARGS | METH_KEYWORDS, NULL},
    {"count", (PyCFunction)(void (*)(void))count, METH_VARARGS | METH_KEYWORDS, NULL},
    {"verify_many", verify_many, METH_VARARGS, NULL},
    {"kernels", kernels, METH_NOARGS, NULL},
    {"fastest", fastest, METH_VARARGS, NULL},
    {"steps", steps, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int add_types(PyObject *module)
{
    if (kernel_named("shani") == NULL)
        return 0;
    PyObject *weighing = PyType_FromModuleAndSpec(module, &weighing_spec, NULL);
    if (weighing == NULL)
        return -1;
    int failed = PyModule_AddType(module, (PyTypeObject *)weighing);
    Py_DECREF(weighing);
    return failed;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_types},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The proof of work in C; sealmail_pow is the way to it.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void)
{
    know_the_machine();
    return PyModuleDef_Init(&definition);
}
