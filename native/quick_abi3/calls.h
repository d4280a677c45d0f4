// What a call has asked, as it is handed from ``asked`` to the method that ends the call.
#pragma once
#include "event.h"

// Write ``{"asked":`` and it, without a closing brace; -1: it is none.
int put_asked(Text *text, PyObject *asked, unsigned long long *began);
