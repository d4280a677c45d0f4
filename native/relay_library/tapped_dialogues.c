/* The dialogues that are known, by whose they are, and those that an earlier process has recorded a part of. */
#include "tapped.h"

#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { DIALOGUES_MOST = 65536 };

struct dialogue *dialogue_find(struct tap *tap, uint64_t who)
{
    struct dialogue *one = tap->buckets[who % TAP_BUCKETS];
    while (one && one->who != who)
        one = one->in_bucket;
    return one;
}

struct dialogue *dialogue_begin(struct tap *tap, const struct tapped *of)
{
    if (tap->count == DIALOGUES_MOST) /* that it was closed has been lost */
        dialogue_end(tap, tap->first, UP, of->mono_ns, "lost");
    struct dialogue *made = must(calloc(1, sizeof *made)), **bucket = &tap->buckets[of->who % TAP_BUCKETS];
    made->lost_before = tap->lost_before;
    made->who = of->who, made->first = *of, made->in_bucket = *bucket, *bucket = made;
    made->previous = tap->last;
    *(tap->last ? &tap->last->next : &tap->first) = made;
    tap->last = made;
    tap->count++;
    return made;
}

void dialogue_drop(struct tap *tap, struct dialogue *one)
{
    struct dialogue **at = &tap->buckets[one->who % TAP_BUCKETS];
    while (*at != one)
        at = &(*at)->in_bucket;
    *at = one->in_bucket;
    *(one->previous ? &one->previous->next : &tap->first) = one->next;
    *(one->next ? &one->next->previous : &tap->last) = one->previous;
    tap->count--;
    tap->ahead -= one->side[UP].ahead + one->side[DOWN].ahead;
    stream_free(&one->side[UP]), stream_free(&one->side[DOWN]);
    free(one->early);
    free(one);
}

/* Nothing came of it. */
void dialogue_fails(struct tap *tap, struct dialogue *one, uint64_t mono_ns, const char *error)
{
    one->number = ++tap->relay->journal.numbers->connection;
    one->connect_ns = mono_ns - one->first.mono_ns;
    tapped_opened(tap, one, one->first.mono_ns, error);
}

void dialogue_end(struct tap *tap, struct dialogue *one, int first, uint64_t mono_ns, const char *how)
{
    tapped_ended(tap, one, first, mono_ns, how);
    tapped_ended(tap, one, !first, mono_ns, how);
    dialogue_drop(tap, one);
}

/* Before anything is taken. The sequence numbers of both its ends tell it from all others. */
API void tap_resume(struct tap *tap, const struct resumed *has)
{
    struct known *made = must(malloc(sizeof *made));
    made->has = *has, made->next = tap->known;
    tap->known = made;
}

/* Go on with a dialogue of an earlier process. NULL: it had none. */
struct dialogue *dialogue_resume(struct tap *tap, const struct tapped *now)
{
    struct known **at = &tap->known, *found;
    while (*at && memcmp((*at)->has.base, now->base, sizeof now->base))
        at = &(*at)->next;
    if (!(found = *at))
        return NULL;
    struct dialogue *made = dialogue_begin(tap, now);
    made->lost_before = UINT64_MAX; /* of what was missing then nothing is known */
    made->number = found->has.number, made->connect_ns = found->has.connect_ns;
    made->is_open = 1, made->is_encrypted = found->has.is_encrypted;
    for (int way = 0; way < 2; way++) {
        stream_begin(&made->side[way], now->base[way]);
        made->side[way].place = (int64_t)found->has.place[way];
        made->has_ended[way] = found->has.has_ended[way];
    }
    *at = found->next;
    free(found);
    return made;
}

struct dialogue *dialogue_find_or_resume(struct tap *tap, const struct tapped *now)
{
    struct dialogue *one = dialogue_find(tap, now->who);
    return one || !tap->known ? one : dialogue_resume(tap, now);
}

/* Its beginning is not known, or what was said before is lost; then `before` says what stood where. */
struct dialogue *dialogue_begin_in_middle(struct tap *tap, const struct tapped *now, const struct dialogue *before)
{
    struct dialogue *made = dialogue_begin(tap, now);
    int way = now->kind == TAP_DOWN;
    uint32_t next[2];
    next[way] = now->sequence, next[!way] = now->flags & FLAG_ACK ? now->acknowledged : now->base[!way];
    made->number = ++tap->relay->journal.numbers->connection, made->is_open = 1;
    made->is_encrypted = before && before->is_encrypted;
    for (int each = 0; each < 2; each++) {
        struct stream *stream = &made->side[each];
        stream_begin(stream, now->base[each]);
        stream->place = (uint32_t)(next[each] - now->base[each]);
        if (before && before->has_ended[each])
            stream->place = before->side[each].place; /* and FIN */
        else if (before && stream_place_of(&before->side[each], next[each]) > stream->place)
            stream->place = stream_place_of(&before->side[each], next[each]); /* there have been more than 4 GiB */
    }
    tapped_opened(tap, made, now->mono_ns, NULL);
    if (before || made->side[UP].place || made->side[DOWN].place) {
        tapped_note(tap, now->mono_ns, made->number, "what was said on a connection before is missing", 0);
        tap->gaps++;
    }
    return made;
}
