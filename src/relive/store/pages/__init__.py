"""Memory pages in the store: which of them changed, how they are kept, and how page files are made of them again.

Terms:

- page: 4096 bytes, found again in the parent commit by the image it belongs to and its address.
- pack: an immutable file of pages, written once by one commit. Its pages lie in numbered *slots*, 128 slots to a *frame*,
  which is compressed (and sealed, where there is a key) as one.
- full and changed words: a page is kept full, or as the words that changed since its own last full version; never since those of
  an earlier change. Before format 6 it was the XOR of both, so what names the place of changed words is called ``xor`` here.
- dictionary: what one commit kept that pages and words of it and of later ones are compressed against; it may continue up to two
older ones.
- table: for each page of a page file the slot of its full version and the slot of its changed words, if any.
- index: what one commit has beside pages: the small images and the tables. It is one more frame of the pack.
- placement: the small signed file that says where a commit's index and pages lie. It may be replaced (a commit's pages move
  to other packs) while the commit's id stays.
- key commit: one whose index stands alone and whose full pages lie in few packs; those after it are stored against it.
"""
