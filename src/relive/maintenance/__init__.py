"""Looking after a store: checking it, thinning it, freeing what nothing needs, healing it, telling what it holds.

Decisions are pure functions (``retention``, ``garbage``, the sums of ``stats``); each has an action beside it that reads the
store, asks it, and acts. Everything here works beside running committers and readers of the same store.
"""
