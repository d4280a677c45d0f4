"""Django's ORM on psycopg, with its connection kept open."""

from decimal import Decimal
from urllib.parse import urlsplit

import django
from django.conf import settings


def main(address, keep):
    if not settings.configured:
        parts = urlsplit(address)
        database = {"ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username}
        database.update({"HOST": parts.hostname, "PORT": parts.port, "CONN_MAX_AGE": None})
        settings.configure(DATABASES={"default": database}, INSTALLED_APPS=[], USE_TZ=True)
        django.setup()
    from django.db import IntegrityError, connection, models, transaction

    if "Thing" not in keep:

        class Thing(models.Model):
            name = models.CharField(max_length=20, unique=True)
            price = models.DecimalField(max_digits=8, decimal_places=2, null=True)
            doc = models.JSONField(null=True)
            at = models.DateTimeField(auto_now_add=False, default="2024-02-29T12:00:00Z")

            class Meta:
                app_label = "things"

        keep["Thing"] = Thing
    thing = keep["Thing"]
    with connection.cursor() as cursor:
        cursor.execute("drop table if exists things_thing")
    with connection.schema_editor() as editor:
        editor.create_model(thing)
    made = thing.objects.create(name="a", price=Decimal("1.50"), doc={"a": [1]})
    yield made.id, made.pk
    thing.objects.bulk_create([thing(name="b"), thing(name="c")])
    found = thing.objects.get(name="a")
    yield found.id, found.price, found.doc, found.at
    with transaction.atomic():
        try:
            with transaction.atomic():
                thing.objects.create(name="a")
        except IntegrityError as error:
            yield type(error.__cause__).__name__
        yield thing.objects.filter(name__in=["a", "b"]).update(price=2)
    yield list(thing.objects.order_by("id").values_list("name", "price"))
    yield list(thing.objects.order_by("id").values("id").iterator())
