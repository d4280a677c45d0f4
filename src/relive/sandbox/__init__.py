"""Branches, in which commits live again, sealed; and what capsules share with them: process 1, root file system, border.

``restoring`` makes a branch of a commit: what has to stand around the processes is read from the images (``image_facts``,
``branch_plan``), ``builder`` builds it in a thread of its own and has CRIU restore into it (the steps and their dangers are there),
and ``branch`` is what comes out. ``fresh_process`` does without a commit.

- process 1: ``init_process`` of a branch, ``spawn`` of a capsule; ``service_start`` runs the one program
- images as branches get them: ``fitted_images``
- files: ``branch_root`` (of the host: ``host_root``, ``changed_files``, ``overlay_files``, ``mount_points``); the numbers of their
  inodes (``inode_numbers``, ``committed_numbers``, ``remembered_numbers``)
- the outside: ``seal`` proves that there is no way out; ``tcp_peers``, ``endpoints`` and ``sinks`` stand for who was there;
  ``publish`` lets the host in
- what it may do: ``limits``, ``cgroups``, ``proc_lockdown``; ``confinement`` looks at the restored processes just before they run
- its time: ``clock``; its recorder: ``rings``; its memory, where that comes later: ``lazy``
- its life: ``ownership`` and ``unfinished`` (who has it, or has died over it), ``rewinder``, ``branch_commit``, ``preserved_files``
"""
