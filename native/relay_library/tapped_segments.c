/* What the segments of a dialogue's two directions say, in whatever order their copies come. */
#include "tapped.h"

#include <string.h>

enum { IS_CLOSED = 256 /* by the service, before it was sent */ };

static const uint64_t AHEAD_MOST = 16ull << 20, AHEAD_IN_ALL = 64ull << 20;

struct taking {
    struct tap *tap;
    struct dialogue *one;
    int way;
    uint64_t mono_ns;
};

/* TLS begins at once, or after PostgreSQL's question for it. */
static void look_for_tls(struct taking *now, const uint8_t *data, size_t size, int64_t at)
{
    static const uint8_t postgres_asks[] = {0, 0, 0, 8, 4, 210, 22, 47};
    struct dialogue *one = now->one;
    if (now->way != UP || one->is_encrypted || !(at == 0 || (at == 8 && one->asks_for_tls)))
        return;
    if (at == 0 && size == sizeof postgres_asks && !memcmp(data, postgres_asks, size))
        one->asks_for_tls = 1;
    if (size < 6 || data[0] != 0x16 || data[1] != 3 || data[5] != 1)
        return;
    one->is_encrypted = 1;
    one->told_in = 0;
}

static void give(void *who, const uint8_t *data, size_t size)
{
    struct taking *now = who;
    struct dialogue *one = now->one;
    struct tap *tap = now->tap;
    int64_t at = one->side[now->way].place - (int64_t)size; /* what is given out is counted before */
    look_for_tls(now, data, size, at);
    if (one->told_in != tap->relay->journal.numbers->first_seq) {
        one->side[now->way].place = at;
        tapped_opened(tap, one, now->mono_ns, NULL);
        one->side[now->way].place = at + (int64_t)size;
    }
    tapped_said(tap, one, now->way, now->mono_ns, at, data, size);
}

/* It stands. What was said with SYN (TCP Fast Open) is said again unless it was taken, which is no difference. */
static void stands(struct tap *tap, struct dialogue *one, const struct tapped *now)
{
    one->number = ++tap->relay->journal.numbers->connection;
    one->connect_ns = now->mono_ns - one->first.mono_ns;
    one->is_open = 1;
    stream_begin(&one->side[UP], now->base[UP]), stream_begin(&one->side[DOWN], now->base[DOWN]);
    tapped_opened(tap, one, one->first.mono_ns, NULL);
    if (one->early)
        stream_add(&one->side[UP], now->base[UP], one->early->data, one->early->size, give, &(struct taking){tap, one, UP, now->mono_ns});
}

/* SYN is answered. What an earlier process took and recorded, and was killed before it had it out of the ring, is there again. */
static void answered(struct tap *tap, struct dialogue *one, const struct tapped *now)
{
    if (tap->known) {
        struct tapped first = one->first;
        dialogue_drop(tap, one);
        one = dialogue_resume(tap, now);
        if (!one)
            one = dialogue_begin(tap, &first);
    }
    if (!one->is_open)
        stands(tap, one, now);
}

static struct dialogue *lose(struct tap *tap, struct dialogue *one, const struct tapped *now)
{
    struct dialogue before = *one; /* of its streams only the places are looked at */
    dialogue_end(tap, one, UP, now->mono_ns, "lost");
    one = dialogue_begin_in_middle(tap, now, &before);
    one->is_closed = before.is_closed;
    if (before.has_ended[UP])
        tapped_ended(tap, one, UP, now->mono_ns, "closed");
    return one;
}

static void begins(struct tap *tap, const struct tapped *now, const uint8_t *data)
{
    struct dialogue *one = dialogue_find(tap, now->who);
    if (one && one->first.base[UP] == now->base[UP])
        return; /* it is said again */
    if (one && !one->is_open)
        dialogue_fails(tap, one, now->mono_ns, "ETIMEDOUT"), dialogue_drop(tap, one);
    else if (one)
        dialogue_end(tap, one, UP, now->mono_ns, "lost");
    one = dialogue_begin(tap, now);
    if (now->size)
        one->early = piece_new(0, data, now->size);
}

/* Bytes of the other way are acknowledged which have not come; FIN takes a number too, also one that is not copied any more. */
static int lacks(const struct dialogue *one, const struct tapped *now)
{
    int other = now->kind != TAP_DOWN ? DOWN : UP;
    const struct stream *stream = &one->side[other];
    if (!(now->flags & FLAG_ACK) || now->flags & FLAG_RST || (other == DOWN && one->is_closed && one->has_ended[DOWN]))
        return 0;
    int has_fin = stream_has_ended(stream) || one->has_ended[other] || now->flags & IS_CLOSED;
    return stream_place_of(stream, now->acknowledged) > stream->place + !!has_fin;
}

/* No copy of its packets can be missing. */
static int is_whole(const struct tap *tap, const struct dialogue *one)
{
    return __atomic_load_n(&tap->notes->lost, __ATOMIC_ACQUIRE) == one->lost_before;
}

/* More waits for those before them than can. */
static int is_too_far(const struct tap *tap, const struct stream *stream, const struct tapped *now)
{
    uint64_t more = now->size + PIECE_COST;
    return stream_place_of(stream, now->sequence) > stream->place &&
           (stream->ahead + more > AHEAD_MOST || tap->ahead + more > AHEAD_IN_ALL);
}

static void add(struct tap *tap, struct dialogue *one, int way, const struct tapped *now, const uint8_t *data)
{
    struct stream *stream = &one->side[way];
    tap->ahead -= stream->ahead;
    stream_add(stream, now->sequence, data, now->size, give, &(struct taking){tap, one, way, now->mono_ns});
    tap->ahead += stream->ahead;
    if (stream->has_end && stream->place > stream->end)
        stream->has_end = 0; /* the socket did not take that FIN: it took more */
}

static void reset(struct tap *tap, struct dialogue *one, int way, const struct tapped *now)
{
    const struct stream *stream = &one->side[way];
    int64_t lacking = stream_place_of(stream, now->sequence) - stream->place;
    dialogue_end(tap, one, way, now->mono_ns, way == DOWN && lacking > 1 && !is_whole(tap, one) ? "lost" : "reset");
}

/* A segment of one that stands. */
static void observe_said(struct tap *tap, struct dialogue *one, int way, const struct tapped *now, const uint8_t *data)
{
    if (lacks(one, now)) {
        if (way == DOWN && is_whole(tap, one))
            return; /* nothing is missing, so the service has not said that: its socket drops the segment as well */
        one = lose(tap, one, now);
    }
    if (way == UP && now->flags & IS_CLOSED) {
        tapped_ended(tap, one, DOWN, now->mono_ns, "closed");
        one->is_closed = 1;
    }
    if (now->size && !one->has_ended[way]) {
        if (is_too_far(tap, &one->side[way], now))
            one = lose(tap, one, now);
        add(tap, one, way, now, data);
    }
    struct stream *stream = &one->side[way];
    if (now->flags & FLAG_RST) {
        reset(tap, one, way, now);
        return;
    }
    if (now->flags & FLAG_FIN && stream_place_of(stream, now->sequence + now->whole) >= stream->place)
        stream_end_at(stream, now->sequence + now->whole);
    if (stream_has_ended(stream))
        tapped_ended(tap, one, way, now->mono_ns, "closed");
    if (one->is_closed && one->has_ended[UP])
        dialogue_drop(tap, one);
}

void tapped_observe(struct tap *tap, const struct tapped *now, const uint8_t *data)
{
    int way = now->kind == TAP_DOWN;
    if (way == UP && (now->flags & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN) {
        begins(tap, now, data);
        return;
    }
    struct dialogue *one = dialogue_find_or_resume(tap, now);
    if (!one && way == DOWN && (now->flags & (FLAG_SYN | FLAG_ACK)) == (FLAG_SYN | FLAG_ACK))
        one = dialogue_begin(tap, now); /* SYN was lost, or taken by a process that was killed then */
    if (one && !one->is_open) {
        if (way == DOWN && now->flags & FLAG_SYN) {
            answered(tap, one, now);
            return;
        }
        if (now->flags & FLAG_RST)
            dialogue_fails(tap, one, now->mono_ns, way == DOWN ? "ECONNREFUSED" : "ETIMEDOUT");
        dialogue_drop(tap, one); /* or the answer to SYN is lost */
        one = NULL;
    }
    if (now->flags & FLAG_SYN || (!one && now->flags & (FLAG_RST | IS_CLOSED)))
        return;
    observe_said(tap, one ? one : dialogue_begin_in_middle(tap, now, NULL), way, now, data);
}

/* The service has closed it: it gets nothing more. What it says last is still to come, and acknowledges what it got. A dialogue is kept
 * until then, also one that has ended both ways, since what was said may be said again. */
void tapped_closed(struct tap *tap, const struct tapped *now)
{
    struct dialogue *one = dialogue_find_or_resume(tap, now);
    if (!one)
        return;
    one->is_closed = 1;
    if (!one->is_open)
        dialogue_fails(tap, one, now->mono_ns, "ETIMEDOUT");
    if (one->is_open && !one->has_ended[UP])
        return;
    const struct stream *got = &one->side[DOWN];
    int is_missing = got->waiting || (got->has_end && !stream_has_ended(got));
    tapped_ended(tap, one, DOWN, now->mono_ns, is_missing ? "lost" : "closed");
    dialogue_drop(tap, one);
}
