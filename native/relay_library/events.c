/* Events of one connection, in the form that `relive.recording.events` specifies. */
#define _GNU_SOURCE
#include "connection.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void record_event(struct connection *connection, const char *kind, uint64_t request, const uint8_t *fields_end, const uint8_t *data,
                  size_t size)
{
    static const uint8_t none = 0x80;
    const uint8_t *fields = fields_end ? connection->worker->fields : &none;
    size_t fields_size = fields_end ? (size_t)(fields_end - fields) : 1;
    journal_append(&connection->worker->relay->journal, kind, connection->number, request, fields, fields_size, data, size);
}

/* -1: it is not there. */
static int64_t log_size(struct log_file *file)
{
    struct stat found;
    if (file->fd < 0)
        file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return file->fd < 0 || fstat(file->fd, &found) ? -1 : (int64_t)found.st_size;
}

static uint8_t *put_sizes(struct relay *relay, uint8_t *at, const int64_t *sizes)
{
    int count = 0;
    for (size_t i = 0; i < relay->log_count; i++)
        count += sizes[i] >= 0;
    at = PUT(at, "log_offsets");
    *at++ = (uint8_t)(0x80 | count); /* a fixmap holds LOGS_MOST - 1; one more is refused when the relay is made */
    for (size_t i = 0; i < relay->log_count; i++)
        if (sizes[i] >= 0)
            at = put_number(put_text(at, relay->logs[i].path, relay->logs[i].size), (uint64_t)sizes[i]);
    return at;
}

uint8_t *put_logs(struct relay *relay, uint8_t *at)
{
    for (size_t i = 0; i < relay->log_count && !relay->has_sizes; i++)
        relay->sizes[i] = log_size(&relay->logs[i]);
    relay->has_sizes = relay->notes != NULL;
    return put_sizes(relay, at, relay->sizes);
}

uint8_t *put_logs_before(struct relay *relay, uint8_t *at)
{
    static const int64_t none[LOGS_MOST] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    if (!relay->notes)
        return put_logs(relay, at);
    uint64_t moment = journal_wall_ns(&relay->journal), last = relay->note_count;
    uint64_t first = last > NOTES_MOST ? last - NOTES_MOST : 0;
    while (last > first) {
        const struct log_note *note = &relay->notes[--last % NOTES_MOST];
        if (note->wall_ns <= moment)
            return put_sizes(relay, at, note->sizes);
    }
    return put_sizes(relay, at, none);
}

uint8_t *put_ends(struct connection *connection, uint8_t *at, int logs)
{
    *at++ = (uint8_t)(0x82 + logs);
    at = put_text(PUT(at, "client"), connection->address, strlen(connection->address));
    at = PUT(at, "local_port");
    if (!connection->is_split)
        return put_number(at, connection->local_port);
    *at++ = 0xc0; /* nil */
    return at;
}

void record_opened(struct connection *connection)
{
    record_event(connection, "connection-opened", 0, put_ends(connection, connection->worker->fields, 0), NULL, 0);
}

void record_closed(struct connection *connection)
{
    uint8_t *at = connection->worker->fields;
    *at++ = 0x82;
    at = put_number(PUT(at, "sent"), connection->sent);
    at = put_number(PUT(at, "requests"), connection->requests);
    record_event(connection, "connection-closed", 0, at, NULL, 0);
}

void record_note(struct connection *connection, const char *text)
{
    uint8_t *at = connection->worker->fields;
    *at++ = 0x82;
    at = PUT(PUT(at, "about"), "unframed");
    at = put_text(PUT(at, "text"), text, strlen(text));
    record_event(connection, "note", 0, at, NULL, 0);
}

void record_how(struct connection *connection, const char *kind, uint64_t request, const char *how, int has_reused)
{
    uint8_t *at = connection->worker->fields;
    *at++ = (uint8_t)(0x81 + has_reused);
    at = put_text(PUT(at, "how"), how, strlen(how));
    if (has_reused)
        at = put_number(PUT(at, "reused"), connection->answered);
    record_event(connection, kind, request, at, NULL, 0);
}
