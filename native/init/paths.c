/* See paths.h. A hash table with chains, FNV-1a; it doubles when there are as many entries as chains. */
#include "paths.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CHAINS = 1024 };

static struct path **chains;
static size_t room, count;

static uint32_t hash_of(const char *text)
{
	uint32_t hash = 2166136261u;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash;
}

static void grow(void)
{
	size_t larger = room ? 2 * room : FIRST_CHAINS;
	struct path **fresh = calloc(larger, sizeof *fresh);

	if (!fresh)
		return; /* longer chains, then */
	for (size_t i = 0; i < room; i++)
		for (struct path *path = chains[i], *next; path; path = next) {
			next = path->next;
			path->next = fresh[path->hash & (larger - 1)];
			fresh[path->hash & (larger - 1)] = path;
		}
	free(chains);
	chains = fresh, room = larger;
}

struct path *find_path(const char *text, bool make)
{
	uint32_t hash = hash_of(text);
	size_t size = strlen(text) + 1;
	struct path *path;

	if (count >= room)
		grow();
	if (!room)
		return NULL;
	for (path = chains[hash & (room - 1)]; path; path = path->next)
		if (path->hash == hash && strcmp(path->text, text) == 0)
			return path;
	if (!make || !(path = calloc(1, sizeof *path + size)))
		return NULL;
	memcpy(path->text, text, size);
	path->hash = hash;
	path->next = chains[hash & (room - 1)];
	chains[hash & (room - 1)] = path;
	count++;
	return path;
}

void forget_path(struct path *path)
{
	struct path **at = &chains[path->hash & (room - 1)];

	while (*at != path)
		at = &(*at)->next;
	*at = path->next;
	count--;
	free(path);
}
