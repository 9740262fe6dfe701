/* The functions of encode.py in C, where the build can compile. encode.py documents them; the format is in codec.py.

   Rules of this file:

   1. A function measures first, then grows the buffer once, and then writes. Between measuring and writing no Python
      code runs, so no object can change in between. A function that returns 0 or raises leaves the buffer unchanged.
   2. Every length is an int64_t, and every sum of lengths is checked against the limit before it can overflow: a
      single length is at most that of an object in memory.
   3. Offsets of Arrow come from the user. Each pair is checked against the size of its data before it is used. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

static const int64_t NO_VALUE = -1; /* the length of a null key or value */

/* Variable-length integers. */

static inline int size_of_varint(int64_t number)
{
    uint64_t raw = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    int size = 1;
    while (raw > 0x7F) {
        raw >>= 7;
        size++;
    }
    return size;
}

static inline char *write_varint(char *to, int64_t number)
{
    uint64_t raw = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    while (raw > 0x7F) {
        *to++ = (char)(raw | 0x80);
        raw >>= 7;
    }
    *to++ = (char)raw;
    return to;
}

/* One record. */

typedef struct {
    const char *data;
    int64_t size; /* NO_VALUE for null */
} Piece;

static inline int64_t bytes_of(const Piece *piece)
{
    return size_of_varint(piece->size) + (piece->size > 0 ? piece->size : 0);
}

static inline int64_t body_size(int64_t timestamp_delta, int64_t offset_delta, const Piece *key, const Piece *value,
                                const Piece *headers)
{
    return 1 + size_of_varint(timestamp_delta) + size_of_varint(offset_delta) + bytes_of(key) + bytes_of(value)
           + headers->size;
}

static inline char *write_piece(char *to, const Piece *piece)
{
    to = write_varint(to, piece->size);
    if (piece->size > 0) {
        memcpy(to, piece->data, (size_t)piece->size);
        to += piece->size;
    }
    return to;
}

static inline char *write_record(char *to, int64_t size, int64_t timestamp_delta, int64_t offset_delta,
                                 const Piece *key, const Piece *value, const Piece *headers)
{
    to = write_varint(to, size);
    *to++ = 0; /* attributes */
    to = write_varint(to, timestamp_delta);
    to = write_varint(to, offset_delta);
    to = write_piece(to, key);
    to = write_piece(to, value);
    memcpy(to, headers->data, (size_t)headers->size);
    return to + headers->size;
}

/* Arguments. */

static int number_of(PyObject *object, int64_t *number)
{
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow) {
        PyErr_Format(PyExc_ValueError, "%S does not fit in 64 bits", object);
        return -1;
    }
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

static int is_bytearray(PyObject *object)
{
    if (PyByteArray_Check(object))
        return 1;
    PyErr_Format(PyExc_TypeError, "the buffer must be a bytearray, got %s", Py_TYPE(object)->tp_name);
    return 0;
}

/* The bytes of a key or value. `view` is released by the caller if its `obj` is not NULL. */
static inline int piece_of(PyObject *object, Piece *piece, Py_buffer *view)
{
    if (object == Py_None) {
        piece->data = NULL;
        piece->size = NO_VALUE;
        return 0;
    }
    if (PyBytes_CheckExact(object)) {
        piece->data = PyBytes_AS_STRING(object);
        piece->size = PyBytes_GET_SIZE(object);
        return 0;
    }
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0)
        return -1;
    piece->data = view->buf;
    piece->size = view->len;
    return 0;
}

/* Makes room for `more` bytes behind those in the buffer; returns where they begin, NULL with an exception.

   A full buffer gets half of its size in addition. bytearray itself adds an eighth, which copies the records of a batch
   nine times while it grows: buffers of several partitions grow in turns, so none of them can grow where it is. A first
   record gets exactly its size, because a large one fills its batch. */
static char *grown(PyObject *buffer, int64_t more)
{
    Py_ssize_t size = PyByteArray_GET_SIZE(buffer);
    if (more > PY_SSIZE_T_MAX / 2 - size) {
        PyErr_NoMemory();
        return NULL;
    }
    Py_ssize_t needed = size + (Py_ssize_t)more;
    /* A resize to less keeps the memory, unless it would be less than half. */
    if (needed >= ((PyByteArrayObject *)buffer)->ob_alloc && more < size
        && PyByteArray_Resize(buffer, needed + needed / 2) < 0)
        return NULL;
    if (PyByteArray_Resize(buffer, needed) < 0)
        return NULL;
    return PyByteArray_AS_STRING(buffer) + size;
}

PyDoc_STRVAR(append_record_doc,
             "append_record(buffer, limit, offset_delta, timestamp_delta, key, value, headers)\n"
             "--\n\n"
             "As in encode.py.");

static PyObject *append_record(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 7) {
        PyErr_Format(PyExc_TypeError, "append_record takes 7 arguments, got %zd", count);
        return NULL;
    }
    PyObject *buffer = args[0], *result = NULL;
    int64_t limit, offset_delta, timestamp_delta;
    if (!is_bytearray(buffer) || number_of(args[1], &limit) < 0 || number_of(args[2], &offset_delta) < 0
        || number_of(args[3], &timestamp_delta) < 0)
        return NULL;
    if (!PyBytes_Check(args[6])) {
        PyErr_Format(PyExc_TypeError, "headers must be encoded, as bytes, got %s", Py_TYPE(args[6])->tp_name);
        return NULL;
    }
    Piece key, value, headers = {PyBytes_AS_STRING(args[6]), PyBytes_GET_SIZE(args[6])};
    Py_buffer key_view, value_view;
    key_view.obj = value_view.obj = NULL;
    if (piece_of(args[4], &key, &key_view) < 0 || piece_of(args[5], &value, &value_view) < 0)
        goto end;

    int64_t size = body_size(timestamp_delta, offset_delta, &key, &value, &headers);
    int64_t whole = size_of_varint(size) + size;
    if (whole > limit - PyByteArray_GET_SIZE(buffer)) {
        result = Py_NewRef(Py_False);
        goto end;
    }
    char *to = grown(buffer, whole);
    if (to != NULL) {
        write_record(to, size, timestamp_delta, offset_delta, &key, &value, &headers);
        result = Py_NewRef(Py_True);
    }
end:
    if (key_view.obj != NULL)
        PyBuffer_Release(&key_view);
    if (value_view.obj != NULL)
        PyBuffer_Release(&value_view);
    return result;
}

/* Headers. */

static inline int header_of(PyObject *pair, Piece *name, Piece *value)
{
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_Format(PyExc_TypeError, "a header must be a tuple of two, got %s", Py_TYPE(pair)->tp_name);
        return -1;
    }
    PyObject *text = PyTuple_GET_ITEM(pair, 0), *data = PyTuple_GET_ITEM(pair, 1);
    if (!PyUnicode_Check(text) || !(data == Py_None || PyBytes_Check(data))) {
        PyErr_Format(PyExc_TypeError, "a header must be a str and bytes or None, got %s and %s", Py_TYPE(text)->tp_name,
                     Py_TYPE(data)->tp_name);
        return -1;
    }
    Py_ssize_t size;
    name->data = PyUnicode_AsUTF8AndSize(text, &size); /* the text keeps the result */
    if (name->data == NULL)
        return -1;
    name->size = size;
    value->data = data == Py_None ? NULL : PyBytes_AS_STRING(data);
    value->size = data == Py_None ? NO_VALUE : PyBytes_GET_SIZE(data);
    return 0;
}

PyDoc_STRVAR(encode_headers_doc, "encode_headers(headers)\n--\n\nAs in encode.py.");

static PyObject *encode_headers(PyObject *module, PyObject *given)
{
    PyObject *result = NULL, *headers = PySequence_Fast(given, "headers must be iterable");
    if (headers == NULL)
        return NULL;
    Piece name, value;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(headers);
    int64_t size = size_of_varint(count);
    for (Py_ssize_t index = 0; index < count; index++) {
        if (header_of(PySequence_Fast_GET_ITEM(headers, index), &name, &value) < 0)
            goto end;
        size += bytes_of(&name) + bytes_of(&value);
    }
    result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (result == NULL)
        goto end;
    char *to = write_varint(PyBytes_AS_STRING(result), count);
    for (Py_ssize_t index = 0; index < count; index++) {
        header_of(PySequence_Fast_GET_ITEM(headers, index), &name, &value);
        to = write_piece(write_piece(to, &name), &value);
    }
end:
    Py_DECREF(headers);
    return result;
}

/* Lists of bytes. */

static inline int item_of(PyObject *list, Py_ssize_t index, Piece *piece)
{
    PyObject *item = PyList_GET_ITEM(list, index);
    if (!PyBytes_CheckExact(item)) {
        PyErr_Format(PyExc_TypeError, "keys and values must be bytes, got %s", Py_TYPE(item)->tp_name);
        return -1;
    }
    piece->data = PyBytes_AS_STRING(item);
    piece->size = PyBytes_GET_SIZE(item);
    return 0;
}

PyDoc_STRVAR(append_lists_doc,
             "append_lists(buffer, limit, first_delta, timestamp_delta, keys, values, headers, start, stop)\n"
             "--\n\n"
             "As pack.RecordLists.append_to.");

static PyObject *append_lists(PyObject *module, PyObject *args)
{
    PyObject *buffer, *keys, *values;
    long long limit, first_delta, timestamp_delta;
    Py_ssize_t start, stop;
    Piece key = {NULL, NO_VALUE}, value, headers;
    Py_ssize_t headers_size;
    if (!PyArg_ParseTuple(args, "O!LLLOO!y#nn:append_lists", &PyByteArray_Type, &buffer, &limit, &first_delta,
                          &timestamp_delta, &keys, &PyList_Type, &values, &headers.data, &headers_size, &start, &stop))
        return NULL;
    headers.size = headers_size;
    if (keys != Py_None && !PyList_Check(keys)) {
        PyErr_Format(PyExc_TypeError, "keys must be a list or None, got %s", Py_TYPE(keys)->tp_name);
        return NULL;
    }
    if (start < 0 || start > stop || stop > PyList_GET_SIZE(values)
        || (keys != Py_None && stop > PyList_GET_SIZE(keys))) {
        PyErr_SetString(PyExc_ValueError, "start and stop must be places in the lists");
        return NULL;
    }
    int64_t room = limit - PyByteArray_GET_SIZE(buffer), taken = 0, delta = first_delta;
    Py_ssize_t end = start;
    for (; end < stop; end++, delta++) {
        if ((keys != Py_None && item_of(keys, end, &key) < 0) || item_of(values, end, &value) < 0)
            return NULL;
        int64_t size = body_size(timestamp_delta, delta, &key, &value, &headers);
        int64_t whole = size_of_varint(size) + size;
        if (whole > room - taken && delta > 0)
            break;
        taken += whole;
    }
    char *to = grown(buffer, taken);
    if (to == NULL)
        return NULL;
    delta = first_delta;
    for (Py_ssize_t index = start; index < end; index++, delta++) {
        if (keys != Py_None)
            item_of(keys, index, &key);
        item_of(values, index, &value);
        int64_t size = body_size(timestamp_delta, delta, &key, &value, &headers);
        to = write_record(to, size, timestamp_delta, delta, &key, &value, &headers);
    }
    return PyLong_FromSsize_t(end - start);
}

/* Columns of Arrow. */

typedef struct {
    Py_buffer offsets, data, validity; /* `obj` is NULL if absent */
    int width;                         /* bytes of an offset: 4 or 8 */
    int64_t first;                     /* the place in the buffers at which the column begins */
    int64_t rows;                      /* places in the buffers */
} Column;

static void release(Column *column)
{
    if (column->offsets.obj != NULL)
        PyBuffer_Release(&column->offsets);
    if (column->data.obj != NULL)
        PyBuffer_Release(&column->data);
    if (column->validity.obj != NULL)
        PyBuffer_Release(&column->validity);
}

/* A column from (width, first, validity or None, offsets, data or None): the buffers of a binary array of Arrow. */
static int column_of(PyObject *given, Column *column)
{
    PyObject *offsets, *data, *validity;
    long long first;
    if (!PyTuple_Check(given)) {
        PyErr_Format(PyExc_TypeError, "a column must be a tuple, got %s", Py_TYPE(given)->tp_name);
        return -1;
    }
    if (!PyArg_ParseTuple(given, "iLOOO", &column->width, &first, &validity, &offsets, &data))
        return -1;
    if (PyObject_GetBuffer(offsets, &column->offsets, PyBUF_SIMPLE) < 0
        || (data != Py_None && PyObject_GetBuffer(data, &column->data, PyBUF_SIMPLE) < 0)
        || (validity != Py_None && PyObject_GetBuffer(validity, &column->validity, PyBUF_SIMPLE) < 0))
        return -1;
    if (column->width != 4 && column->width != 8) {
        PyErr_Format(PyExc_ValueError, "an offset must have 4 or 8 bytes, got %d", column->width);
        return -1;
    }
    column->first = first;
    column->rows = (int64_t)column->offsets.len / column->width - 1;
    if (column->validity.obj != NULL && (int64_t)column->validity.len * 8 < column->rows)
        column->rows = (int64_t)column->validity.len * 8;
    if (first < 0 || first > column->rows) {
        PyErr_SetString(PyExc_ValueError, "a column begins outside of its buffers");
        return -1;
    }
    return 0;
}

static inline int64_t edge_of(const Column *column, int64_t place)
{
    const char *at = (const char *)column->offsets.buf + place * column->width;
    if (column->width == 8) {
        int64_t wide;
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    int32_t narrow;
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

static inline int row_of(const Column *column, int64_t row, Piece *piece)
{
    piece->data = "";
    piece->size = NO_VALUE;
    if (row < 0 || row >= column->rows - column->first) {
        PyErr_Format(PyExc_ValueError, "row %lld is outside of its column", (long long)row);
        return -1;
    }
    int64_t place = row + column->first;
    if (column->validity.obj != NULL && !(((const uint8_t *)column->validity.buf)[place >> 3] >> (place & 7) & 1))
        return 0;
    int64_t begin = edge_of(column, place), end = edge_of(column, place + 1);
    if (begin < 0 || begin > end || end > (column->data.obj == NULL ? 0 : (int64_t)column->data.len)) {
        PyErr_Format(PyExc_ValueError, "row %lld points outside of the data of its column", (long long)row);
        return -1;
    }
    if (end > begin)
        piece->data = (const char *)column->data.buf + begin;
    piece->size = end - begin;
    return 0;
}

typedef struct {
    Column key, value, headers;
    Py_buffer numbers, timestamps; /* int64; `obj` is NULL if absent */
    int has_key, has_headers;
    int64_t timestamp; /* of all rows, without a column of them */
} Table;

typedef struct {
    Piece key, value, headers;
    int64_t timestamp;
} Row;

/* The row at `index`: of the table, or of `numbers`, which name rows of the table. */
static inline int read_row(const Table *table, int64_t index, Row *row)
{
    int64_t number = index;
    if (table->numbers.obj != NULL)
        memcpy(&number, (const char *)table->numbers.buf + index * (int64_t)sizeof number, sizeof number);
    row->key.size = NO_VALUE;
    row->headers.data = "\0";
    row->headers.size = 1;
    row->timestamp = table->timestamp;
    if ((table->has_key && row_of(&table->key, number, &row->key) < 0) || row_of(&table->value, number, &row->value) < 0
        || (table->has_headers && row_of(&table->headers, number, &row->headers) < 0))
        return -1;
    if (row->headers.size < 0) {
        PyErr_SetString(PyExc_ValueError, "the encoded headers of a row are null");
        return -1;
    }
    if (table->timestamps.obj != NULL) {
        if (number >= (int64_t)table->timestamps.len / (int64_t)sizeof number) {
            PyErr_Format(PyExc_ValueError, "row %lld has no timestamp", (long long)number);
            return -1;
        }
        memcpy(&row->timestamp, (const char *)table->timestamps.buf + number * (int64_t)sizeof number, sizeof number);
    }
    return 0;
}

/* Timestamps are >= 0, so a difference of two does not overflow. */
static inline int64_t size_of_row(const Row *row, int64_t base, int64_t delta)
{
    return body_size(row->timestamp - base, delta, &row->key, &row->value, &row->headers);
}

static PyObject *append_table(PyObject *buffer, int64_t limit, int64_t start, int64_t stop, const Table *table)
{
    Row row;
    if (start == stop)
        return Py_BuildValue("nLL", (Py_ssize_t)0, -1LL, -1LL);
    if (read_row(table, start, &row) < 0)
        return NULL;
    int64_t base = row.timestamp, latest = base, room = limit - PyByteArray_GET_SIZE(buffer), taken = 0, end = start;
    for (; end < stop; end++) {
        if (read_row(table, end, &row) < 0)
            return NULL;
        if (row.timestamp < 0) {
            PyErr_SetString(PyExc_ValueError, "a timestamp must be >= 0");
            return NULL;
        }
        int64_t size = size_of_row(&row, base, end - start);
        int64_t whole = size_of_varint(size) + size;
        if (whole > room - taken && end > start)
            break;
        taken += whole;
        if (row.timestamp > latest)
            latest = row.timestamp;
    }
    char *to = grown(buffer, taken);
    if (to == NULL)
        return NULL;
    for (int64_t index = start; index < end; index++) {
        read_row(table, index, &row);
        to = write_record(to, size_of_row(&row, base, index - start), row.timestamp - base, index - start, &row.key,
                          &row.value, &row.headers);
    }
    return Py_BuildValue("nLL", (Py_ssize_t)(end - start), (long long)base, (long long)latest);
}

PyDoc_STRVAR(append_rows_doc,
             "append_rows(buffer, limit, start, stop, numbers, timestamp, timestamps, keys, values, headers)\n"
             "--\n\n"
             "As in encode.py.");

static PyObject *append_rows(PyObject *module, PyObject *args)
{
    PyObject *buffer, *numbers, *timestamps, *keys, *values, *headers, *result = NULL;
    long long limit, start, stop, timestamp;
    if (!PyArg_ParseTuple(args, "O!LLLOLOOOO:append_rows", &PyByteArray_Type, &buffer, &limit, &start, &stop, &numbers,
                          &timestamp, &timestamps, &keys, &values, &headers))
        return NULL;
    Table table;
    memset(&table, 0, sizeof table);
    table.timestamp = timestamp;
    table.has_key = keys != Py_None;
    table.has_headers = headers != Py_None;
    if ((table.has_key && column_of(keys, &table.key) < 0) || column_of(values, &table.value) < 0
        || (table.has_headers && column_of(headers, &table.headers) < 0)
        || (numbers != Py_None && PyObject_GetBuffer(numbers, &table.numbers, PyBUF_SIMPLE) < 0)
        || (timestamps != Py_None && PyObject_GetBuffer(timestamps, &table.timestamps, PyBUF_SIMPLE) < 0))
        goto end;
    if (start < 0 || start > stop
        || (table.numbers.obj != NULL && stop > (long long)(table.numbers.len / sizeof(int64_t)))) {
        PyErr_SetString(PyExc_ValueError, "start and stop must be places of rows");
        goto end;
    }
    result = append_table(buffer, limit, start, stop, &table);
end:
    release(&table.key);
    release(&table.value);
    release(&table.headers);
    if (table.numbers.obj != NULL)
        PyBuffer_Release(&table.numbers);
    if (table.timestamps.obj != NULL)
        PyBuffer_Release(&table.timestamps);
    return result;
}

/* Keys. */

static inline uint32_t word_at(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static int hash_of(PyObject *data, int32_t *hash)
{
    const uint32_t multiplier = 0x5BD1E995;
    Piece piece;
    Py_buffer view;
    view.obj = NULL;
    if (data == Py_None) {
        PyErr_SetString(PyExc_TypeError, "a key of None has no hash");
        return -1;
    }
    if (piece_of(data, &piece, &view) < 0)
        return -1;
    const uint8_t *at = (const uint8_t *)piece.data;
    int64_t left = piece.size;
    uint32_t hashed = 0x9747B28C ^ (uint32_t)left;
    for (; left >= 4; left -= 4, at += 4) {
        uint32_t word = word_at(at) * multiplier;
        hashed = hashed * multiplier ^ (word ^ word >> 24) * multiplier;
    }
    if (left > 0) {
        for (int64_t place = 0; place < left; place++)
            hashed ^= (uint32_t)at[place] << 8 * place;
        hashed *= multiplier;
    }
    hashed = (hashed ^ hashed >> 13) * multiplier;
    hashed ^= hashed >> 15;
    if (view.obj != NULL)
        PyBuffer_Release(&view);
    *hash = (int32_t)hashed;
    return 0;
}

PyDoc_STRVAR(murmur2_doc, "murmur2(data)\n--\n\nAs in encode.py.");

static PyObject *murmur2(PyObject *module, PyObject *data)
{
    int32_t hash;
    return hash_of(data, &hash) < 0 ? NULL : PyLong_FromLong(hash);
}

PyDoc_STRVAR(partition_for_key_doc, "partition_for_key(key, count)\n--\n\nAs in encode.py.");

static PyObject *partition_for_key(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    int32_t hash;
    int64_t count;
    if (given != 2) {
        PyErr_Format(PyExc_TypeError, "partition_for_key takes 2 arguments, got %zd", given);
        return NULL;
    }
    if (hash_of(args[0], &hash) < 0 || number_of(args[1], &count) < 0)
        return NULL;
    if (count <= 0) {
        PyErr_Format(PyExc_ValueError, "count must be at least 1, got %lld", (long long)count);
        return NULL;
    }
    return PyLong_FromLongLong((hash & 0x7FFFFFFF) % count);
}

static PyMethodDef methods[] = {
    {"append_record", (PyCFunction)(void (*)(void))append_record, METH_FASTCALL, append_record_doc},
    {"append_lists", append_lists, METH_VARARGS, append_lists_doc},
    {"append_rows", append_rows, METH_VARARGS, append_rows_doc},
    {"encode_headers", encode_headers, METH_O, encode_headers_doc},
    {"murmur2", murmur2, METH_O, murmur2_doc},
    {"partition_for_key", (PyCFunction)(void (*)(void))partition_for_key, METH_FASTCALL, partition_for_key_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "encode", "Encodes records into the buffer of a batch, and hashes keys.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_encode(void)
{
    return PyModuleDef_Init(&definition);
}
