/* Heads of HTTP/1 messages and chunk framing, as far as it is certain what they mean.
 *
 * What `relive.recording.http1` would refuse, or read in a way of its own, is `ODD` here: then Python has the word. What is taken here it
 * takes, too, with the same meaning; tests hold the two against each other. */
#ifndef RELAY_HEADS_H
#define RELAY_HEADS_H

#include <stddef.h>
#include <stdint.h>

enum verdict { WHOLE, UNFINISHED, ODD };

#define UNTIL_CLOSE (-1)
#define IN_CHUNKS (-2)

struct request_head {
    size_t size; /* with its blank line */
    uint64_t length; /* of its body */
    int is_head; /* the method is HEAD */
};

struct answer_head {
    size_t size;
    int status; /* 200 to 999 */
    int64_t length; /* of the body by its headers, UNTIL_CLOSE or IN_CHUNKS */
};

enum verdict read_request_head(const uint8_t *data, size_t size, struct request_head *head);
enum verdict read_answer_head(const uint8_t *data, size_t size, struct answer_head *head);

/* Whether a client's first bytes begin a request of a common method: then it speaks HTTP/1. */
int begins_request(const uint8_t *data, size_t size);

struct chunks {
    int state;
    int digits;
    uint64_t left;
    uint64_t line, trailers; /* bytes so far */
    const char *broken; /* how the line breaks the rules; said at its end, as Python does, which reads lines */
};

void chunks_begin(struct chunks *chunks);
/* Follow the framing through the next bytes of a body. Returns how many of them belong to it and sets *is_over when it ends there;
 * -1: it breaks the rules, and *why says how. */
int64_t chunks_take(struct chunks *chunks, const uint8_t *data, size_t size, int *is_over, const char **why);

#endif
