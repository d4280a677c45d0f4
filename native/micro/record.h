/* What relive-micro writes of a look or of a commit: sections, each with two u64 before it (kind, length in bytes). All numbers are the
 * machine's. `relive.checkpoint.micro_record` reads it. A file without all its sections is none: what was interrupted is not read. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of what was seen only. False: errno says why. */
bool write_look(const char *path);

/* Of all that a commit needs, to where its pages are (record_file.h); `clocks`: real, monotonic and boot time when all stood still, and for
 * how long [ns]. */
bool write_commit(const int64_t clocks[4]);
