/* Writing a recording: see journal.h. */
#define _GNU_SOURCE
#include "journal.h"
#include "checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define RECORD_HEADER 12
#define SEGMENT_HEADER 64
#define RETRY_NS 1000000000ull
#define ROOM_TO_RESUME (4ull << 20)
#define COPIED_MOST 4096
#define WAITING_MOST (1u << 20)
#define KEPT_COPIED_MOST (512u * 1024) /* as of a `journal_keep_back`: larger than any packet */
#define KEPT_WAITING_MOST (2u << 20)
#define PART_LEAST 8192 /* of what is not copied: to name a smaller one to the kernel costs as much */
enum { HEAD_STATE = 2, HEAD_SEQ, HEAD_REQUEST, HEAD_CONNECTION, HEAD_SEGMENT, HEAD_OFFSET };
enum { STATE_RECORDING = 1, STATE_OFF };

uint64_t clock_ns(int clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t journal_mono_ns(const struct journal *journal)
{
    return journal->numbers->seen_wall_ns ? journal->numbers->seen_mono_ns : clock_ns(CLOCK_MONOTONIC);
}

uint64_t journal_wall_ns(const struct journal *journal)
{
    return journal->numbers->seen_wall_ns ? journal->numbers->seen_wall_ns : clock_ns(CLOCK_REALTIME);
}

static int make_room(struct journal *journal, size_t waiting_most, size_t copied_most)
{
    size_t room = waiting_most + FIELDS_MOST + copied_most + 256;
    uint8_t *waiting = realloc(journal->waiting, room);
    if (!waiting)
        return -1;
    journal->waiting = waiting, journal->waiting_room = room;
    journal->waiting_most = waiting_most, journal->copied_most = copied_most;
    return 0;
}

int journal_open(struct journal *journal, const char *directory, struct numbers *numbers, uint64_t *head)
{
    memset(journal, 0, sizeof *journal);
    if (strlen(directory) > sizeof journal->directory - 64)
        return -1;
    strcpy(journal->directory, directory);
    journal->numbers = numbers;
    journal->head = head;
    return make_room(journal, WAITING_MOST, COPIED_MOST) ? -1 : pthread_mutex_init(&journal->lock, NULL);
}

int journal_keep_back(struct journal *journal)
{
    return make_room(journal, KEPT_WAITING_MOST, KEPT_COPIED_MOST);
}

void journal_lasts(struct journal *journal, const uint8_t *begin, size_t size)
{
    journal->lasting = begin, journal->lasting_end = begin + size;
}

static void tell_head(struct journal *journal)
{
    struct numbers *numbers = journal->numbers;
    journal->head[HEAD_REQUEST] = numbers->request;
    journal->head[HEAD_CONNECTION] = numbers->connection;
    journal->head[HEAD_SEGMENT] = numbers->first_seq;
    journal->head[HEAD_OFFSET] = numbers->offset;
    /* Last, so that whoever reads this cursor finds all events up to it in the files. */
    __atomic_store_n(&journal->head[HEAD_SEQ], numbers->seq, __ATOMIC_RELEASE);
}

static int write_segment_header(struct journal *journal, int fd, uint64_t first)
{
    uint8_t header[SEGMENT_HEADER] = "RELIVREC\1";
    uint64_t values[] = {first, journal->numbers->request, journal->numbers->connection, clock_ns(CLOCK_MONOTONIC),
                         clock_ns(CLOCK_REALTIME)};
    memcpy(header + 16, values, sizeof values);
    uint32_t crc = crc32_of(0, header, sizeof header);
    memcpy(header + 12, &crc, 4);
    ssize_t written = write(fd, header, sizeof header);
    if (written >= 0 && written != sizeof header)
        errno = ENOSPC;
    return written == sizeof header ? 0 : -1;
}

/* As RecordingWriter._begin_segment: under another name until it has its header. */
static int begin_segment(struct journal *journal, uint64_t first)
{
    struct numbers *numbers = journal->numbers;
    char path[sizeof journal->directory], unborn[sizeof journal->directory];
    snprintf(path, sizeof path, "%.4000s/%020" PRIu64 ".events", journal->directory, first);
    snprintf(unborn, sizeof unborn, "%.4000s/%020" PRIu64 ".unborn", journal->directory, first);
    int fd = open(unborn, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    if (write_segment_header(journal, fd, first) || rename(unborn, path)) {
        int error = errno;
        close(fd);
        unlink(unborn);
        errno = error;
        return -1;
    }
    close((int)numbers->fd);
    numbers->fd = fd, numbers->first_seq = first, numbers->offset = SEGMENT_HEADER;
    numbers->full_at_ns = numbers->full_for_ns ? clock_ns(CLOCK_MONOTONIC) + numbers->full_for_ns : 0;
    tell_head(journal);
    journal->tell(journal->who, JOURNAL_SEGMENT, first);
    return 0;
}

static void switch_off(struct journal *journal, int error, uint64_t events)
{
    struct numbers *numbers = journal->numbers;
    numbers->lost += events;
    numbers->retry_at_ns = clock_ns(CLOCK_MONOTONIC) + RETRY_NS;
    if (ftruncate((int)numbers->fd, (off_t)numbers->offset) == 0)
        lseek((int)numbers->fd, (off_t)numbers->offset, SEEK_SET);
    journal->head[HEAD_STATE] = STATE_OFF;
    journal->tell(journal->who, JOURNAL_OFF, (uint64_t)error);
}

static int write_all(int fd, struct iovec *parts, int count)
{
    while (count) {
        ssize_t written = writev(fd, parts, count);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        if (!written) {
            errno = ENOSPC;
            return -1;
        }
        for (; count && (size_t)written >= parts->iov_len; parts++, count--)
            written -= (ssize_t)parts->iov_len;
        if (count)
            parts->iov_base = (uint8_t *)parts->iov_base + written, parts->iov_len -= (size_t)written;
    }
    return 0;
}

/* What waits, to the kernel. */
static void hand_over(struct journal *journal)
{
    struct numbers *numbers = journal->numbers;
    uint64_t events = journal->waiting_events;
    size_t size = journal->part_bytes;
    int count = journal->part_count;
    journal->part_count = 0, journal->part_bytes = 0, journal->waiting_bytes = 0, journal->waiting_events = 0;
    int is_full = numbers->offset + size > numbers->segment_bytes ||
                  (numbers->full_at_ns && clock_ns(CLOCK_MONOTONIC) > numbers->full_at_ns);
    if (is_full && numbers->offset > SEGMENT_HEADER && begin_segment(journal, numbers->seq - events + 1) < 0) {
        switch_off(journal, errno, events);
    } else if (write_all((int)numbers->fd, journal->parts, count) < 0) {
        switch_off(journal, errno, events);
    } else {
        numbers->offset += size;
        numbers->lost = 0;
    }
    tell_head(journal);
}

void journal_flush(struct journal *journal)
{
    if (journal->part_count)
        hand_over(journal);
}

/* One behind the other. What follows the last in memory becomes a part of it. */
static void add_part(struct journal *journal, const uint8_t *data, size_t size)
{
    struct iovec *last = journal->part_count ? &journal->parts[journal->part_count - 1] : NULL;
    if (last && (const uint8_t *)last->iov_base + last->iov_len == data)
        last->iov_len += size;
    else
        journal->parts[journal->part_count++] = (struct iovec){(void *)data, size};
    journal->part_bytes += size;
}

/* It is there until `journal_flush`, and large enough for a part of its own. */
static int lasts(const struct journal *journal, const uint8_t *data, size_t size)
{
    return size >= PART_LEAST && data >= journal->lasting && data + size <= journal->lasting_end;
}

/* Try to go on, once a RETRY_NS; the note that says what is missing comes first. */
static int has_resumed(struct journal *journal)
{
    struct numbers *numbers = journal->numbers;
    struct statvfs room;
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    if (now < numbers->retry_at_ns)
        return 0;
    numbers->retry_at_ns = now + RETRY_NS;
    if (statvfs(journal->directory, &room) || (uint64_t)room.f_bavail * room.f_frsize < ROOM_TO_RESUME)
        return 0;
    if (begin_segment(journal, numbers->seq + 1) < 0)
        return 0;
    numbers->retry_at_ns = 0;
    journal->head[HEAD_STATE] = STATE_RECORDING;
    static const char text[] = "recording was off because the disk was full";
    uint8_t fields[128], *at = fields;
    *at++ = 0x83;
    at = put_text(put_text(at, "about", 5), "disk", 4);
    at = put_text(put_text(at, "text", 4), text, sizeof text - 1);
    at = put_number(put_text(at, "lost", 4), numbers->lost);
    journal_append(journal, "note", 0, 0, fields, (size_t)(at - fields), NULL, 0);
    journal->tell(journal->who, JOURNAL_ON, numbers->lost);
    return 1;
}

uint64_t journal_append(struct journal *journal, const char *kind, uint64_t connection, uint64_t request, const uint8_t *fields,
                        size_t fields_size, const uint8_t *data, size_t data_size)
{
    uint64_t mono_ns = journal_mono_ns(journal), wall_ns = journal_wall_ns(journal);
    return journal_append_at(journal, mono_ns, wall_ns, kind, connection, request, fields, fields_size, data, data_size);
}

uint64_t journal_append_at(struct journal *journal, uint64_t mono_ns, uint64_t wall_ns, const char *kind, uint64_t connection,
                           uint64_t request, const uint8_t *fields, size_t fields_size, const uint8_t *data, size_t data_size)
{
    struct numbers *numbers = journal->numbers;
    if (numbers->retry_at_ns && !has_resumed(journal)) {
        numbers->seq++, numbers->lost++;
        tell_head(journal);
        return numbers->seq;
    }
    if (journal->part_bytes > journal->waiting_most || journal->part_count > PARTS_MOST - 2)
        journal_flush(journal);
    if (numbers->retry_at_ns || fields_size > FIELDS_MOST) { /* switched off just now */
        numbers->lost++;
        return ++numbers->seq;
    }
    uint8_t *record = journal->waiting + journal->waiting_bytes, *body = record + RECORD_HEADER, *at = body;
    *at++ = 0x92, *at++ = 0x97;
    at = put_number(at, ++numbers->seq);
    at = put_number(put_number(at, mono_ns), wall_ns);
    at = put_number(put_number(put_text(at, kind, strlen(kind)), connection), request);
    memcpy(at, fields, fields_size);
    at = put_bin_head(at + fields_size, data_size);
    uint32_t size = (uint32_t)((size_t)(at - body) + data_size);
    int has_lasting = lasts(journal, data, data_size), is_copied = !has_lasting && data_size <= journal->copied_most;
    if (data_size && is_copied) {
        memcpy(at, data, data_size);
        at += data_size;
    }
    uint32_t sum = crc32_of(0, body, (size_t)(at - body));
    uint32_t header[3] = {size, ~size, is_copied ? sum : crc32_of(sum, data, data_size)};
    memcpy(record, header, sizeof header);
    journal->waiting_bytes = (size_t)(at - journal->waiting);
    journal->waiting_events++;
    add_part(journal, record, (size_t)(at - record));
    if (is_copied)
        return numbers->seq;
    add_part(journal, data, data_size);
    if (!has_lasting)
        hand_over(journal);
    return numbers->seq;
}
