/* rows.py in C, where the build can compile. rows.py documents it; what differs is here.

   Rules of this file:

   1. A record is one allocation: a tuple of the class of the record, which is filled before anything else can see it.
   2. The garbage collector does not look at a record whose key and value are bytes or null: such a record refers to
      nothing that could refer back to it. Else a list of many records is walked again and again while it grows, which
      took more time than decoding.
   3. No length is trusted: a column may be a list that its owner shortens. The first column that ends is the end. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define COLUMNS 4 /* timestamps, keys, values, headers */
#define FIELDS 9  /* of a record; one with a delivery count has one more */

enum { TIMESTAMPS, KEYS, VALUES, HEADERS };

/* What all records of a chunk have. */
typedef struct {
    PyTypeObject *kind;
    PyObject *topic, *partition, *timestamp_type, *leader_epoch;
    PyObject *delivery_count; /* NULL: the records have none */
} Constants;

typedef struct {
    PyObject_HEAD
    Constants constants; /* with references of its own */
    PyObject *offsets;   /* an iterator */
    PyObject *columns[COLUMNS]; /* lists or tuples */
    Py_ssize_t index;
} Rows;

static inline int
is_plain(PyObject *object)
{
    return object == Py_None || PyBytes_CheckExact(object);
}

/* Make a record. Takes over the reference to the offset, also when it fails. */
static PyObject *
make_record(const Constants *constants, PyObject *offset, PyObject *const columns[COLUMNS], Py_ssize_t index)
{
    PyObject *cells[COLUMNS];
    for (int column = 0; column < COLUMNS; column++) {
        if (index >= PySequence_Fast_GET_SIZE(columns[column])) {
            Py_DECREF(offset);
            return NULL;
        }
        cells[column] = PySequence_Fast_GET_ITEM(columns[column], index);
    }
    for (int column = 0; column < COLUMNS; column++)
        Py_INCREF(cells[column]); /* an allocation may run the collector, and that Python code of others */
    Py_ssize_t count = constants->delivery_count == NULL ? FIELDS : FIELDS + 1;
    PyTupleObject *record = PyObject_GC_NewVar(PyTupleObject, constants->kind, count);
    if (record == NULL) {
        for (int column = 0; column < COLUMNS; column++)
            Py_DECREF(cells[column]);
        Py_DECREF(offset);
        return NULL;
    }
#if PY_VERSION_HEX >= 0x030E0000
    record->ob_hash = -1; /* not computed yet */
#endif
    PyObject **items = record->ob_item;
    items[0] = Py_NewRef(constants->topic);
    items[1] = Py_NewRef(constants->partition);
    items[2] = offset;
    items[3] = cells[TIMESTAMPS];
    items[4] = Py_NewRef(constants->timestamp_type);
    items[5] = cells[KEYS];
    items[6] = cells[VALUES];
    items[7] = cells[HEADERS];
    items[8] = Py_NewRef(constants->leader_epoch);
    if (constants->delivery_count != NULL)
        items[9] = Py_NewRef(constants->delivery_count);
    if (!is_plain(cells[KEYS]) || !is_plain(cells[VALUES]))
        PyObject_GC_Track(record);
    return (PyObject *)record;
}

static PyObject *
rows_next(Rows *rows)
{
    PyObject *offset = Py_TYPE(rows->offsets)->tp_iternext(rows->offsets);
    return offset == NULL ? NULL : make_record(&rows->constants, offset, rows->columns, rows->index++);
}

static PyObject *
rows_length_hint(Rows *rows, PyObject *unused)
{
    Py_ssize_t left = PyObject_LengthHint(rows->offsets, 0);
    return left < 0 ? NULL : PyLong_FromSsize_t(left);
}

static int
rows_traverse(Rows *rows, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(rows));
    Py_VISIT(rows->constants.kind);
    Py_VISIT(rows->constants.topic);
    Py_VISIT(rows->constants.partition);
    Py_VISIT(rows->constants.timestamp_type);
    Py_VISIT(rows->constants.leader_epoch);
    Py_VISIT(rows->constants.delivery_count);
    Py_VISIT(rows->offsets);
    for (int column = 0; column < COLUMNS; column++)
        Py_VISIT(rows->columns[column]);
    return 0;
}

static void
rows_dealloc(Rows *rows)
{
    PyTypeObject *type = Py_TYPE(rows);
    PyObject_GC_UnTrack(rows);
    Py_XDECREF(rows->constants.kind);
    Py_XDECREF(rows->constants.topic);
    Py_XDECREF(rows->constants.partition);
    Py_XDECREF(rows->constants.timestamp_type);
    Py_XDECREF(rows->constants.leader_epoch);
    Py_XDECREF(rows->constants.delivery_count);
    Py_XDECREF(rows->offsets);
    for (int column = 0; column < COLUMNS; column++)
        Py_XDECREF(rows->columns[column]);
    type->tp_free(rows);
    Py_DECREF(type);
}

static PyMethodDef rows_methods[] = {
    {"__length_hint__", (PyCFunction)rows_length_hint, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, rows_next},
    {Py_tp_methods, rows_methods},
    {Py_tp_traverse, rows_traverse},
    {Py_tp_dealloc, rows_dealloc},
    {0, NULL},
};

static PyType_Spec rows_spec = {
    .name = "aiokafka_lite.consumer.rows.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = rows_slots,
};

typedef struct {
    PyTypeObject *rows_type;
} State;

/* Whether an instance of the class has the layout of a tuple and nothing else: rule 1. */
static int
is_plain_tuple(PyObject *kind)
{
    if (!PyType_Check(kind) || !PyType_IsSubtype((PyTypeObject *)kind, &PyTuple_Type))
        return 0;
    PyTypeObject *type = (PyTypeObject *)kind;
    return type->tp_basicsize == PyTuple_Type.tp_basicsize && type->tp_itemsize == PyTuple_Type.tp_itemsize &&
           type->tp_dictoffset == 0 && type->tp_weaklistoffset == 0 && type != &PyTuple_Type;
}

/* Borrow the constants from the arguments. 0 with an exception if they are of another kind. */
static int
read_constants(PyObject *kind, PyObject *given, Constants *constants)
{
    if (!is_plain_tuple(kind)) {
        PyErr_Format(PyExc_TypeError, "records are made of a NamedTuple, got %R", kind);
        return 0;
    }
    constants->kind = (PyTypeObject *)kind;
    constants->delivery_count = NULL;
    return PyArg_UnpackTuple(given, "constants", 4, 5, &constants->topic, &constants->partition,
                             &constants->timestamp_type, &constants->leader_epoch, &constants->delivery_count);
}

static PyObject *
iterate_rows(PyObject *module, PyObject *args)
{
    PyObject *kind, *given, *offsets, *columns[COLUMNS];
    Constants constants;
    if (!PyArg_ParseTuple(args, "OO!OOOOO", &kind, &PyTuple_Type, &given, &offsets, &columns[TIMESTAMPS],
                          &columns[KEYS], &columns[VALUES], &columns[HEADERS]) ||
        !read_constants(kind, given, &constants))
        return NULL;
    State *state = PyModule_GetState(module);
    Rows *rows = PyObject_GC_New(Rows, state->rows_type);
    if (rows == NULL)
        return NULL;
    rows->constants = constants;
    Py_INCREF(constants.kind);
    Py_INCREF(constants.topic);
    Py_INCREF(constants.partition);
    Py_INCREF(constants.timestamp_type);
    Py_INCREF(constants.leader_epoch);
    Py_XINCREF(constants.delivery_count);
    rows->index = 0;
    rows->offsets = PyObject_GetIter(offsets);
    int failed = rows->offsets == NULL;
    for (int column = 0; column < COLUMNS; column++) {
        rows->columns[column] = failed ? NULL : PySequence_Fast(columns[column], "a column is a sequence");
        failed |= rows->columns[column] == NULL;
    }
    PyObject_GC_Track(rows);
    if (failed) {
        Py_DECREF(rows);
        return NULL;
    }
    return (PyObject *)rows;
}

static PyObject *
list_rows(PyObject *module, PyObject *args)
{
    PyObject *kind, *given, *lists, *offsets, *columns[COLUMNS];
    Py_ssize_t start, stop;
    Constants constants;
    if (!PyArg_ParseTuple(args, "OO!O!nn", &kind, &PyTuple_Type, &given, &PyTuple_Type, &lists, &start, &stop) ||
        !read_constants(kind, given, &constants) ||
        !PyArg_UnpackTuple(lists, "columns", COLUMNS + 1, COLUMNS + 1, &offsets, &columns[TIMESTAMPS], &columns[KEYS],
                           &columns[VALUES], &columns[HEADERS]))
        return NULL;
    int fits = 0 <= start && start <= stop && PyList_Check(offsets) && stop <= PyList_GET_SIZE(offsets);
    for (int column = 0; column < COLUMNS && fits; column++)
        fits = PyList_Check(columns[column]) && stop <= PyList_GET_SIZE(columns[column]);
    if (!fits)
        return PyErr_Format(PyExc_IndexError, "the lists have no rows %zd to %zd", start, stop);
    PyObject *records = PyList_New(stop - start);
    if (records == NULL)
        return NULL;
    PyObject_GC_UnTrack(records); /* while it grows, the collector would read it again and again */
    for (Py_ssize_t index = start; index < stop; index++) {
        PyObject *offset = index < PyList_GET_SIZE(offsets) ? Py_NewRef(PyList_GET_ITEM(offsets, index)) : NULL;
        PyObject *record = offset == NULL ? NULL : make_record(&constants, offset, columns, index);
        if (record == NULL) {
            Py_DECREF(records);
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_IndexError, "the columns were shortened");
        }
        PyList_SET_ITEM(records, index - start, record);
    }
    PyObject_GC_Track(records);
    return records;
}

static PyObject *
collectable(PyObject *module, PyObject *column)
{
    if (PyList_CheckExact(column) && !PyObject_GC_IsTracked(column))
        PyObject_GC_Track(column);
    return Py_NewRef(column);
}

static PyMethodDef functions[] = {
    {"collectable", collectable, METH_O, NULL},
    {"iterate_rows", iterate_rows, METH_VARARGS, NULL},
    {"list_rows", list_rows, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int
prepare(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->rows_type = (PyTypeObject *)PyType_FromSpec(&rows_spec);
    return state->rows_type == NULL ? -1 : 0;
}

static int
traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->rows_type);
    return 0;
}

static int
clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->rows_type);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "rows",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC
PyInit_rows(void)
{
    return PyModuleDef_Init(&definition);
}
