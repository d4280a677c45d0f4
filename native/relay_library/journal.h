/* The writer of a recording in C: relive.recording.writer is its specification, relive.recording.layout the bytes.
 *
 * The Python side makes the directory, the head file and the first segment, and drops old segments. Everything between is here, so that
 * threads that carry traffic need no Python. All calls but `journal_open` want the lock. */
#ifndef RELAY_JOURNAL_H
#define RELAY_JOURNAL_H

#include "../msgpack.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define PARTS_MOST 512

/* Shared with Python (`relive.proxies.relay`), which reads it; each number is stored whole. */
struct numbers {
    uint64_t seq, request, connection; /* the last ones given */
    uint64_t first_seq, offset; /* of the segment that is being written */
    uint64_t segment_bytes; /* how large one may be */
    uint64_t full_at_ns, full_for_ns; /* when it has been written to for long enough, and how long that is; 0: never */
    uint64_t lost, retry_at_ns; /* retry_at_ns: not 0 while the recording is off */
    int64_t fd;
    uint64_t seen_mono_ns, seen_wall_ns; /* when what is recorded was seen; 0: at the moment at which it is */
};

struct journal {
    pthread_mutex_t lock;
    struct numbers *numbers;
    volatile uint64_t *head;
    char directory[4096];
    struct iovec parts[PARTS_MOST]; /* what the kernel does not have yet: pieces of `waiting`, and data where they are */
    int part_count;
    size_t part_bytes, waiting_most; /* with more than `waiting_most` they are handed to it */
    uint8_t *waiting;
    size_t waiting_bytes, waiting_room;
    size_t copied_most; /* larger data goes to the kernel from where it is, with all that waits */
    const uint8_t *lasting, *lasting_end; /* memory that stays as it is until `journal_flush` */
    uint64_t waiting_events;
    void (*tell)(void *who, int what, uint64_t value); /* JOURNAL_* below, with the lock held */
    void *who;
};

enum { JOURNAL_OFF = 1, JOURNAL_ON, JOURNAL_SEGMENT }; /* value: errno, events lost, lowest seq of the segment */

int journal_open(struct journal *journal, const char *directory, struct numbers *numbers, uint64_t *head);
/* Nobody waits for what is recorded until `journal_flush`: have the kernel get much at once, which costs half as much for each byte
 * (ext4, 64 KiB and 2 MiB: larger folios). Before the first event. -1: there is no memory. */
int journal_keep_back(struct journal *journal);
/* What lies in this memory when it is recorded is there until `journal_flush`, and is not copied before the kernel does. */
void journal_lasts(struct journal *journal, const uint8_t *begin, size_t size);
/* One event; `fields` is a packed map of at most FIELDS_MOST bytes. Returns its seq. */
#define FIELDS_MOST (1024 * 1024)
uint64_t journal_append(struct journal *journal, const char *kind, uint64_t connection, uint64_t request, const uint8_t *fields,
                        size_t fields_size, const uint8_t *data, size_t data_size);
/* The same of an event that was seen before: `mono_ns`, `wall_ns` say when. */
uint64_t journal_append_at(struct journal *journal, uint64_t mono_ns, uint64_t wall_ns, const char *kind, uint64_t connection,
                           uint64_t request, const uint8_t *fields, size_t fields_size, const uint8_t *data, size_t data_size);
/* Hand all events to the kernel. */
void journal_flush(struct journal *journal);
uint64_t clock_ns(int clock);
/* When what is recorded now was seen, CLOCK_MONOTONIC and CLOCK_REALTIME. */
uint64_t journal_mono_ns(const struct journal *journal);
uint64_t journal_wall_ns(const struct journal *journal);

#endif
