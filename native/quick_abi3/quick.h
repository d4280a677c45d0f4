// The type ``Quick``, a writer of a ring with a method for each kind of event.
#pragma once
#include "python.h"

extern PyTypeObject *quick_type;  // of what ``make_quick_type`` made
PyTypeObject *make_quick_type(void);
