"""Reproducing a failure from what lies beside its incident, without any commit: a fresh process of the service, sealed."""
