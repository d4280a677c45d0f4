/* One number for all that a rollback writes: each page that is not zero, with its address, and each thread's registers. Two restores of one
 * commit have the same. What the kernel writes whenever a thread runs (the processor's number, rseq(2)) is left out. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern uint64_t digest;

/* Makes that of the process, whose threads are held with the registers of the reference, and whose mappings are as they were read last.
 * False: refused, since it is not that of the reference. */
bool compare_digests(void);

/* A hash of bytes, which goes on from that of what was before them. */
uint64_t mixed(uint64_t hash, const void *from, size_t size);
