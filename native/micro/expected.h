/* What whoever asks for a commit has copied of files while the process ran, and how to see that none of it has changed since: with that a
 * commit needs nobody else while all stand still. `relive.checkpoint.expected_files` writes it, and says why it is a proof. */
#pragma once
#include <stdbool.h>

/* Reads what is expected of the next commit; false: it cannot be read, or is more than is looked at in a pause. */
bool read_expected(const char *path);

/* Whether something was read, and all is so. To be called while all threads stand still. */
bool is_as_expected(void);

/* Nothing is expected any more. */
void forget_expected(void);
