// CPython's stable ABI from 3.8 on, and what is not of it but has been the same for as long. Before any other header.
#pragma once
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>  // before Python.h, which asks for mmap64, a name that not every C library has
#include <unistd.h>
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000
#include <Python.h>

// Part of the stable ABI only from 3.10 on, but the same since 3.7.
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif
typedef PyObject *(*Fast)(PyObject *, PyObject *const *, Py_ssize_t);
#define FAST(function) ((PyCFunction)(void (*)(void))(Fast)(function))
// Not part of it at all, but the same since 3.7.1. Weak: where it should be gone one day, the variable's method is called.
extern int PyContextVar_Get(PyObject *, PyObject *, PyObject **) __attribute__((weak));
extern PyObject *PyContextVar_Set(PyObject *, PyObject *) __attribute__((weak));
extern int PyContextVar_Reset(PyObject *, PyObject *) __attribute__((weak));
extern PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *) __attribute__((weak));  // from 3.9 on
extern const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *) __attribute__((weak));  // of the stable ABI from 3.10 on

// Names by which attributes and modules are asked for, made once.
#define NAMES_OF_PYTHON(NAME)                                                                                                             \
    NAME(number, "number")                                                                                                                \
    NAME(checker, "checker")                                                                                                              \
    NAME(description, "description")                                                                                                      \
    NAME(rowcount, "rowcount")                                                                                                            \
    NAME(lastrowid, "lastrowid")                                                                                                          \
    NAME(asyncio, "asyncio")                                                                                                              \
    NAME(name, "__name__")                                                                                                                \
    NAME(connection, "connection")                                                                                                        \
    NAME(texts, "_texts")                                                                                                                 \
    NAME(database, "_relive_database")                                                                                                    \
    NAME(asked, "asked")                                                                                                                  \
    NAME(sqlite, "sqlite")                                                                                                                \
    NAME(parameters, ",\"parameters\":")                                                                                                  \
    NAME(request, "request")                                                                                                              \
    NAME(who, "who")                                                                                                                      \
    NAME(birth, "birth")                                                                                                                  \
    NAME(lanes, "lanes")                                                                                                                  \
    NAME(globals, "f_globals")                                                                                                            \
    NAME(file, "co_filename")                                                                                                             \
    NAME(current_tasks, "_current_tasks")                                                                                                 \
    NAME(headers, "headers")                                                                                                              \
    NAME(client, "client")                                                                                                                \
    NAME(method, "method")                                                                                                                \
    NAME(query_string, "query_string")                                                                                                    \
    NAME(raw_path, "raw_path")                                                                                                            \
    NAME(execute, "execute")                                                                                                              \
    NAME(token, "_token")                                                                                                                 \
    NAME(began, "_began")                                                                                                                 \
    NAME(store, "store")                                                                                                                  \
    NAME(about, "_about")                                                                                                                 \
    NAME(requests, "requests")                                                                                                            \
    NAME(msg, "msg")                                                                                                                      \
    NAME(args, "args")                                                                                                                    \
    NAME(exc_info, "exc_info")                                                                                                            \
    NAME(lineno, "lineno")                                                                                                                \
    NAME(pathname, "pathname")                                                                                                            \
    NAME(message, "message")                                                                                                              \
    NAME(levelname, "levelname")                                                                                                          \
    NAME(name_of_logger, "name")                                                                                                          \
    NAME(dict, "__dict__")                                                                                                                \
    NAME(running_loop, "__asyncio_running_event_loop__")                                                                                  \
    NAME(quick, "quick")                                                                                                                  \
    NAME(rows, "_relive_rows")                                                                                                            \
    NAME(type, "type")                                                                                                                    \
    NAME(body, "body")                                                                                                                    \
    NAME(status, "status")                                                                                                                \
    NAME(raw_headers, "raw_headers")                                                                                                      \
    NAME(sole, "_sole")                                                                                                                   \
    NAME(routed, "routed")                                                                                                                \
    NAME(at_rest, "at_rest")                                                                                                              \
    NAME(is_left, "is_left")                                                                                                              \
    NAME(ended, "ended")                                                                                                                  \
    NAME(wrapped, "__wrapped__")                                                                                                          \
    NAME(await, "__await__")                                                                                                              \
    NAME(get, "__get__")                                                                                                                  \
    NAME(send, "send")                                                                                                                    \
    NAME(throw, "throw")                                                                                                                  \
    NAME(close, "close")                                                                                                                  \
    NAME(remote_addr, "REMOTE_ADDR")                                                                                                      \
    NAME(remote_port, "REMOTE_PORT")                                                                                                      \
    NAME(content_length, "CONTENT_LENGTH")                                                                                                \
    NAME(transfer_encoding, "HTTP_TRANSFER_ENCODING")                                                                                     \
    NAME(raw_uri, "RAW_URI")                                                                                                              \
    NAME(request_uri, "REQUEST_URI")                                                                                                      \
    NAME(request_method, "REQUEST_METHOD")                                                                                                \
    NAME(file_wrapper, "wsgi.file_wrapper")                                                                                               \
    NAME(int, "int")                                                                                                                      \
    NAME(switch_off, "switch_off")
#define DECLARE_NAME(which, said) extern PyObject *name_##which;
NAMES_OF_PYTHON(DECLARE_NAME)

// Whether this interpreter is the one of the process to which all that is kept here belongs: objects of another may be gone at any time.
int is_own_interpreter(void);

// Give a class a method in C, under the definition's name; -1 with an error.
int put_method(PyObject *class, PyMethodDef *definition);

static inline PyObject *kept(PyObject *object) {
    Py_INCREF(object);
    return object;
}

// Slots of types: an iterator, or a coroutine, is its own; an object that the garbage collector knows is let go.
PyObject *itself(PyObject *object);
void let_go(PyObject *object, inquiry clear);
