"""Understanding a failure from what was kept of it. Nothing here starts a process or changes what is stored.

``detail`` gathers what is known of an incident. From that follow the ``timeline`` of its request (in the ``words`` of its
events), a page (``page``), OpenTelemetry spans (``spans``) and HAR (``har``). What came from a service may be hostile: any
JSON where some was expected, text that is markup or moves a terminal's cursor.
"""
