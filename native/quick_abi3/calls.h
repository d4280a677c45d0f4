// What calls have in common.
#pragma once
#include "event.h"
#include "values.h"

// What is given to a call, a tuple or list, packed; the text fails where it is more than is kept.
void put_values(const Quick *self, Text *text, PyObject *values, const Checker *checker);
