/* Whether the kernel's objects tell what they are taken to tell. A member may come to mean something else in another kernel and keep its name;
 * then what was told before would be told again though it has changed.
 *
 * So in the first commit in which something is known, and in each 256th after it, all is asked for all the same. What would have been told is set
 * aside, and compared with that. Where it differs, and the objects have not changed meanwhile, they are *suspected*.
 *
 * So do the counters of memory (memory_state.h), in the same commit, since a page that vanished unseen or a mapping that changed would be left as
 * it was: mappings, pages and advice are then looked at as if they had moved. Where nothing else is ever known, and in the first commit of a base in
 * which they are believed, that is so by a count of its own for each. */
#pragma once
#include "plan.h"

void begin_audit(void);
bool is_audit(void);

/* Something is known in the commit under way; that came to be. */
void note_known(void);
void count_audit(void);

/* What is left as it was because the counters of memory say that nothing changed. */
enum memory_part { MAPPINGS, PAGES, ADVICE, MEMORY_PARTS };

/* Of a commit in which they say so: whether that part is looked at all the same; they are believed once more. */
bool is_memory_audit(enum memory_part part);

/* They were believed in the commit under way, of a part that was not looked at. That another commit's was tells nothing of this one: a page that
 * vanished unseen is missing in one commit only, and what changed unseen is found anew with the next change that is seen. */
bool is_memory_believed(void);

/* What was looked at had changed, with the counters as they were before and after that. It is so until it was judged. */
void suspect_memory(const char *what);

/* False: refused, since that was found. */
bool is_memory_well(void);

/* Nothing that was believed of memory is compared with yet: a base begins. */
void forget_memory_audit(void);

/* Takes what was said of a part from `from` on off the text; what is asked of it comes next. */
void set_aside(int number, size_t from);

/* It has come, from `from` on. Does nothing where nothing was set aside of that part. */
void compare_told(const struct segment *s, int number, size_t from);

/* Suspects it where what is known of a part is not what was asked of it, by the first word in which they differ. */
void compare_words(const struct segment *s, int number, const char *known, size_t known_size, const char *asked, size_t size);

/* Something else of a part was asked, and is not what it is taken to be. */
void suspect(const struct segment *s, int number, const char *what);

/* False: refused. */
bool is_audit_well(void);
