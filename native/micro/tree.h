/* The trackers of a tree of processes, one for each, which stop and let go all of it together.
 *
 * The first is the leader: it speaks with whoever started it, passes on each line to the others by pipes, and gives one answer for
 * all. In a commit they *meet*: none goes on before all have come and voted. What each has seen of its process's descriptors lies in
 * memory that they share, so that which are one open file in two processes can be told. Where one dies, all others refuse, and let go of
 * what they hold; the leader ends then, and whoever started it learns it by that. With one process there is nobody to meet. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum vote { AS_BASE = 1, DIFFERS, DIFFERS_FOR_GOOD, REFUSED }; /* the greatest of all counts */
enum { TRACKERS_MOST = 64 };

/* Starts a tracker for each process but the first; returns in each of them, with `process.pid` set. False: it cannot be done. */
bool begin_tree(int count, char **pids);

bool is_leader(void);

/* Passes a line on to the others; of one that names a file each gets a name of its own, as the caller knows it (FILE.1, FILE.2 ...). */
void pass_on(const char *line);

/* The leader's answer, with those of all; the others answer the leader. Ends the program where one has died. */
__attribute__((format(printf, 1, 2))) void answer(const char *form, ...);

/* A commit begins: who meets later belongs to it. */
void begin_meetings(void);

/* Comes to the next meeting, waits for all others, and returns what counts; REFUSED with the reason in `refusal`, also where one
 * has died or does not come. `within` [ms]. */
enum vote meet(enum vote mine, int within);

/* Notes a descriptor of the process (`same`: an earlier one that is the same open file, or -1); the first look forgets what was noted. */
void forget_held(void);
bool note_held(int number, uint64_t device, uint64_t inode, int same, bool is_connection);

/* The same of memory that the process shares, by its inode; whether no tracker before this one has noted it. */
void forget_shared(void);
bool note_shared(uint64_t inode);
bool is_first_with(uint64_t inode);

/* All have met since they looked: says which descriptors are one open file with one of another process. False: refused. */
bool say_kin(void);
