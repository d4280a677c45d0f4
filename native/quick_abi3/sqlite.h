// Methods of SQLite's cursors and connections in C: what kinds/sqlite.py does for statements and rows that are plain.
#pragma once
#include "python.h"

// sqlite(recorder, cursor, connection, execute, fetchone, fetchall, make_cursor, execute_told, answered, failed, fetched, fetched_all) -> bool:
// give the two classes their methods ``execute``, ``fetchone`` and ``fetchall``; once in a process. False: it was done already.
PyObject *module_sqlite(PyObject *module, PyObject *given);
