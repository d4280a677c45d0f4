/* The file that a commit is written to. What is copied ahead goes right into it: where its pages lie they are mapped, and stay so as long as
 * commits go to the same file (a memfd of whoever asks), since to find fresh memory for them takes as long as to copy them.
 *
 * Its first page holds a section of nothing, and at its end the head of that of the pages. Whoever asks may cut it off between commits. */
#pragma once
#include "regions.h"

enum { RECORD_KEPT = 4 << 20 }; /* [bytes] that it keeps, whatever the next commit needs of them */

/* Has `list->pages` be where they lie in it; at most so many bytes. False: refused. */
bool open_record(const char *path, struct run_list *list, size_t most);

/* There is to be room for so many bytes of pages in all; they are kept. False: refused. */
bool make_room_in_record(size_t size);

/* The head of the section of pages, and the file at the place behind them, for what comes next; -1: errno says why. */
int record_behind_pages(uint64_t kind, size_t size);

/* All is written that was to be. False: errno says why. */
bool end_record(uint64_t nothing);
