/* The functions of decode.py in C, where the build can compile. decode.py documents them; what differs is here.

   Rules of this file:

   1. No length and no number of the data is trusted: `read_record` checks each one against the end of its record, and
      the end of the record against the end of the data, before it is used.
   2. It raises no error for data: it answers "not done", and the caller decodes the same data with Python code, which
      finds the error, or handles what is rare.
   3. It decides what codec.decode_records decides. tests/pure/records compares the two on valid and on damaged data, and
      runs this file under the sanitizers of the compiler.
   4. The garbage collector does not look at the lists of `decode_lists`, which have only numbers and bytes: it would
      read all of them again and again while records are made. Who gives such a list to a program calls `collectable`
      first (rows.c), because the program may change it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define SMALLEST_RECORD 7
#define TABLE_ROWS 8

typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    Py_ssize_t key, key_size; /* where it begins, and its size: -1 for null */
    Py_ssize_t value, value_size;
    Py_ssize_t headers; /* where their number is */
    int64_t header_count;
    Py_ssize_t end;
} Record;

/* Read an unsigned number of at most `longest` bytes before `end`. */
static inline int
read_raw(const uint8_t *data, Py_ssize_t end, Py_ssize_t *position, int longest, uint64_t *raw)
{
    Py_ssize_t at = *position;
    uint64_t number = 0;
    for (int index = 0; index < longest && at < end; index++) {
        uint8_t byte = data[at++];
        number |= (uint64_t)(byte & 0x7F) << (7 * index);
        if (byte < 0x80) {
            *position = at;
            *raw = number;
            return index < 9 || byte < 2; /* the tenth byte has the last of 64 bits */
        }
    }
    return 0;
}

static inline int
read_varint(const uint8_t *data, Py_ssize_t end, Py_ssize_t *position, uint64_t *raw)
{
    return read_raw(data, end, position, 5, raw) && *raw >> 32 == 0;
}

/* Read the length of a key or value: -1 for null. Moves the position behind its bytes. */
static inline int
read_blob(const uint8_t *data, Py_ssize_t end, Py_ssize_t *position, Py_ssize_t *begin, Py_ssize_t *size)
{
    uint64_t raw;
    if (!read_varint(data, end, position, &raw))
        return 0;
    *begin = *position;
    if (raw & 1) {
        *size = -1;
        return raw == 1;
    }
    *size = (Py_ssize_t)(raw >> 1);
    if (*size > end - *position)
        return 0;
    *position += *size;
    return 1;
}

/* Read the record at `position`, which ends by `size`. 0 unless it is an ordinary one. */
static inline int
read_record(const uint8_t *data, Py_ssize_t size, Py_ssize_t position, Record *record)
{
    uint64_t raw;
    if (!read_varint(data, size, &position, &raw) || raw & 1 || (Py_ssize_t)(raw >> 1) > size - position)
        return 0;
    Py_ssize_t end = position + (Py_ssize_t)(raw >> 1);
    position++; /* the attributes: the next read checks that there is something behind them */
    if (!read_raw(data, end, &position, 10, &raw))
        return 0;
    record->timestamp_delta = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
    if (!read_varint(data, end, &position, &raw) || raw & 1)
        return 0;
    record->offset_delta = (int64_t)(raw >> 1);
    if (!read_blob(data, end, &position, &record->key, &record->key_size))
        return 0;
    if (!read_blob(data, end, &position, &record->value, &record->value_size))
        return 0;
    record->headers = position;
    if (!read_varint(data, end, &position, &raw) || raw & 1)
        return 0;
    record->header_count = (int64_t)(raw >> 1);
    record->end = end;
    return record->header_count > 0 || position == end; /* Python code decodes headers, and checks where they end */
}

static inline int
add(int64_t base, int64_t delta, int64_t *sum)
{
    if (delta > 0 ? base > INT64_MAX - delta : base < INT64_MIN - delta)
        return 0;
    *sum = base + delta;
    return 1;
}

static PyObject *
blob(const uint8_t *data, Py_ssize_t begin, Py_ssize_t size)
{
    if (size < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)data + begin, size);
}

/* 1: the lists have `count` records, perhaps fewer than before. 0: the data is not ordinary. -1: an exception is set. */
static int
fill_lists(const uint8_t *data, Py_ssize_t size, Py_ssize_t *position, Py_ssize_t *count, int64_t base_offset,
           int64_t base_timestamp, PyObject *append_time, int64_t next_delta, int64_t max_headers,
           PyObject *const lists[4], PyObject *with_headers)
{
    PyObject *timestamp = NULL; /* borrowed from the list: many records in a row have the same one */
    int64_t last_timestamp = 0;
    for (Py_ssize_t index = 0; index < *count; index++) {
        Record record;
        int64_t offset, at = 0;
        if (!read_record(data, size, *position, &record) || record.offset_delta < next_delta)
            return 0;
        if (record.header_count > max_headers) {
            *count = index;
            return index > 0;
        }
        if (!add(base_offset, record.offset_delta, &offset))
            return 0;
        if (append_time != Py_None)
            timestamp = Py_NewRef(append_time);
        else {
            if (!add(base_timestamp, record.timestamp_delta, &at))
                return 0;
            timestamp = timestamp != NULL && at == last_timestamp ? Py_NewRef(timestamp) : PyLong_FromLongLong(at);
            last_timestamp = at;
        }
        PyObject *made[4] = {
            PyLong_FromLongLong(offset),
            timestamp,
            blob(data, record.key, record.key_size),
            blob(data, record.value, record.value_size),
        };
        int failed = 0;
        for (int column = 0; column < 4; column++) {
            failed |= made[column] == NULL;
            PyList_SET_ITEM(lists[column], index, made[column]); /* a list may have empty places when it is freed */
        }
        if (failed)
            return -1;
        if (record.header_count > 0) {
            max_headers -= record.header_count;
            PyObject *place = Py_BuildValue("nnn", index, record.headers, record.end);
            if (place == NULL)
                return -1;
            int status = PyList_Append(with_headers, place);
            Py_DECREF(place);
            if (status < 0)
                return -1;
        }
        next_delta = record.offset_delta + 1;
        *position = record.end;
    }
    return 1;
}

static PyObject *
decode_lists(PyObject *module, PyObject *args)
{
    Py_buffer data;
    Py_ssize_t position, count;
    long long base_offset, base_timestamp, first_delta, max_headers;
    PyObject *append_time;
    if (!PyArg_ParseTuple(args, "y*nnLLOLL", &data, &position, &count, &base_offset, &base_timestamp, &append_time,
                          &first_delta, &max_headers))
        return NULL;
    int status = position >= 0 && position <= data.len && count >= 0 && count <= (data.len - position) / SMALLEST_RECORD;
    PyObject *lists[4] = {NULL, NULL, NULL, NULL}, *with_headers = NULL, *result = NULL;
    if (status > 0) {
        with_headers = PyList_New(0);
        status = with_headers == NULL ? -1 : 1;
        for (int column = 0; column < 4 && status > 0; column++) {
            lists[column] = PyList_New(count);
            status = lists[column] == NULL ? -1 : 1;
            if (status > 0)
                PyObject_GC_UnTrack(lists[column]);
        }
    }
    Py_ssize_t found = count;
    if (status > 0)
        status = fill_lists(data.buf, data.len, &position, &found, base_offset, base_timestamp, append_time, first_delta,
                            max_headers, lists, with_headers);
    PyBuffer_Release(&data);
    for (int column = 0; column < 4 && status > 0 && found < count; column++)
        status = PyList_SetSlice(lists[column], found, count, NULL) < 0 ? -1 : 1;
    if (status > 0)
        result = Py_BuildValue("OOOOOn", lists[0], lists[1], lists[2], lists[3], with_headers, position);
    else if (status == 0)
        result = Py_NewRef(Py_None);
    for (int column = 0; column < 4; column++)
        Py_XDECREF(lists[column]);
    Py_XDECREF(with_headers);
    return result;
}

static PyObject *
find_fields(PyObject *module, PyObject *args)
{
    Py_buffer data, table;
    Py_ssize_t before, count, first;
    long long base_offset, base_timestamp, last_delta;
    int has_append_time;
    if (!PyArg_ParseTuple(args, "y*nnLLpLw*n", &data, &before, &count, &base_offset, &base_timestamp,
                          &has_append_time, &last_delta, &table, &first))
        return NULL;
    Py_ssize_t rows = table.len / (Py_ssize_t)(TABLE_ROWS * sizeof(int64_t));
    int is_ordinary = count >= 0 && first >= 0 && first <= rows && count <= rows - first;
    Py_ssize_t position = 0;
    const uint8_t *bytes = data.buf;
    int64_t *column = (int64_t *)table.buf + (is_ordinary ? first : 0);
    int64_t next_delta = 0;
    for (Py_ssize_t index = 0; index < count && is_ordinary; index++, column++) {
        Record record;
        int64_t offset, timestamp;
        is_ordinary = read_record(bytes, data.len, position, &record) && record.offset_delta >= next_delta &&
                      record.offset_delta <= last_delta && add(base_offset, record.offset_delta, &offset) &&
                      add(base_timestamp, has_append_time ? 0 : record.timestamp_delta, &timestamp);
        if (!is_ordinary)
            break;
        column[0] = offset;
        column[rows] = timestamp;
        column[2 * rows] = before + record.key;
        column[3 * rows] = record.key_size;
        column[4 * rows] = before + record.value;
        column[5 * rows] = record.value_size;
        column[6 * rows] = before + record.headers;
        column[7 * rows] = before + record.end;
        next_delta = record.offset_delta + 1;
        position = record.end;
    }
    is_ordinary = is_ordinary && position == data.len;
    PyBuffer_Release(&data);
    PyBuffer_Release(&table);
    return PyBool_FromLong(is_ordinary);
}

static PyObject *
join_fields(PyObject *module, PyObject *args)
{
    Py_buffer data, places, sizes, edges, joined;
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*", &data, &places, &sizes, &edges, &joined))
        return NULL;
    Py_ssize_t count = sizes.len / (Py_ssize_t)sizeof(int64_t), filled = 0;
    int fits = places.len == sizes.len && edges.len == (count + 1) * (Py_ssize_t)sizeof(int32_t);
    const int64_t *place = places.buf, *size = sizes.buf;
    int32_t *edge = edges.buf;
    if (fits)
        *edge++ = 0;
    for (Py_ssize_t index = 0; index < count && fits; index++) {
        int64_t length = size[index] < 0 ? 0 : size[index];
        fits = place[index] >= 0 && place[index] <= data.len && length <= data.len - place[index] &&
               length <= joined.len - filled && length <= INT32_MAX - filled;
        if (fits) {
            memcpy((char *)joined.buf + filled, (const char *)data.buf + place[index], (size_t)length);
            filled += (Py_ssize_t)length;
            *edge++ = (int32_t)filled;
        }
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&places);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&edges);
    PyBuffer_Release(&joined);
    return PyBool_FromLong(fits);
}

static PyMethodDef functions[] = {
    {"decode_lists", decode_lists, METH_VARARGS, NULL},
    {"find_fields", find_fields, METH_VARARGS, NULL},
    {"join_fields", join_fields, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "decode",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit_decode(void)
{
    return PyModuleDef_Init(&definition);
}
