/* The private memory of the process as it was, and putting that back.
 *
 * A page that counts as not written (tracker/userfault.h) has the content of the reference, or is zero where the reference has none. All
 * others are written anew; what has come since is made zero, or given back. */
#pragma once
#include "../micro/base.h"

/* Copies all of it. False: refused. */
bool copy_reference(void);

/* To be called while all threads are held, with the mappings as in the reference, just read. Finds what differs; by any thread. False:
 * refused. */
bool find_pages(void);

/* To be called behind it. False: refused, and memory is half of each. */
bool put_pages_back(void);

/* Makes `present` of all pages that there are, by address, with what is asked of them. False: refused. */
bool find_all(uint64_t returned);

extern size_t pages_put_back; /* by the last call */

/* The reference, run by run in the order of addresses. */
size_t kept_runs_count(void);
const unsigned char *kept_run(size_t which, uint64_t *start, uint64_t *end);

/* Writes bytes, wherever the process itself may not write either. */
bool poke(uint64_t to, const void *from, size_t size);
