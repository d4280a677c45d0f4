/* See wall_clock.h. */
#define _GNU_SOURCE
#include "wall_clock.h"

#include "pages.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { VDSO_MOST = 16 * PAGE, PLACES = 6, CONSTANT = 8 /* [bytes] */ };
#define SECOND 1000000000LL

static unsigned char image[VDSO_MOST]; /* of the routines; all that is written is between the first place and the last */
static uint64_t start;
static size_t places[PLACES]; /* in the image, in turn of what is left of a second (in the second pair in microseconds) and of seconds */
static int place_count;
static long long shift, kept_at;

static long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static long long seconds_of(long long ns)
{
	return ns >= 0 ? ns / SECOND : -((-ns + SECOND - 1) / SECOND);
}

static long long value_at(int place, long long ns)
{
	const long long left = ns - seconds_of(ns) * SECOND;

	return place % 2 ? seconds_of(ns) : place / 2 == 1 ? left / 1000 : left;
}

static uint64_t find_vdso(size_t *size)
{
	char path[64], line[512];
	unsigned long long start = 0, end = 0;
	bool is_found = false;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/maps", (int)process.pid);
	f = fopen(path, "r");
	while (f && !is_found && fgets(line, sizeof line, f))
		is_found = strstr(line, "[vdso]") && sscanf(line, "%llx-%llx", &start, &end) == 2;
	if (f)
		fclose(f);
	*size = end - start;
	return is_found && *size <= VDSO_MOST ? start : 0;
}

/* "mov $VALUE,%rax", as the routines have it. */
static const unsigned char *find_constant(const unsigned char *from, const unsigned char *end, long long value)
{
	unsigned char wanted[10] = { 0x48, 0xb8 };

	memcpy(wanted + 2, &value, sizeof value);
	return memmem(from, (size_t)(end - from), wanted, sizeof wanted);
}

bool find_wall_clock(long long shift_ns)
{
	const unsigned char *at = image;
	size_t size;

	start = find_vdso(&size);
	shift = shift_ns;
	kept_at = now_ns();
	if (!start || !peek(process.pid, start, image, size))
		return refuse("its wall clock is not found");
	for (; place_count < PLACES; place_count++) {
		const unsigned char *found = find_constant(at, image + size, value_at(place_count, shift));

		if (!found)
			return refuse("its wall clock is not found");
		places[place_count] = (size_t)(found - image) + 2;
		at = found + 10;
	}
	return true;
}

bool put_wall_clock_back(void)
{
	const long long now = shift - (place_count ? now_ns() - kept_at : 0);

	for (int i = 0; i < place_count; i++) {
		const long long value = value_at(i, now);

		memcpy(image + places[i], &value, CONSTANT);
	}
	if (place_count && !poke(start + places[0], image + places[0], places[PLACES - 1] + CONSTANT - places[0]))
		return refuse("its wall clock cannot be put back");
	return true;
}
