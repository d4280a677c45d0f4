"""A Django service with its ORM on SQLite, as an ASGI and as a WSGI application; started by uvicorn or gunicorn.

An order that was counted asks a clock and randomness, and fails when there are more than its stock.
"""

import os
import time
import uuid
from typing import Any

import django
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ["SHOP_DB"],
            "OPTIONS": {"init_command": "pragma journal_mode=wal"},
        }
    },
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    INSTALLED_APPS=[],
    MIDDLEWARE=[],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of nobody",
    USE_TZ=True,
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402 - Django wants to be set up before
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.utils import timezone  # noqa: E402

STOCK = {"pen": 3}


class Order(models.Model):
    """One line of the table."""

    what = models.CharField(max_length=20)
    name = models.CharField(max_length=40, unique=True)
    at = models.DateTimeField()

    class Meta:
        app_label = "shop"


if Order._meta.db_table not in connection.introspection.table_names():
    with connection.schema_editor() as editor:
        editor.create_model(Order)
connection.close()


def order(request: HttpRequest, what: str) -> JsonResponse:
    """In one transaction, as a function."""
    with transaction.atomic():
        made = Order.objects.create(what=what, name=uuid.uuid4().hex, at=timezone.now())
        return told(what, made, Order.objects.filter(what=what).count())


async def order_async(request: HttpRequest, what: str) -> JsonResponse:
    """As a coroutine, which Django takes to its threads for each query."""
    made = await Order.objects.acreate(what=what, name=uuid.uuid4().hex, at=timezone.now())
    return told(what, made, await Order.objects.filter(what=what).acount())


def told(what: str, made: Any, count: int) -> JsonResponse:
    """What a client is told; KeyError where there is no stock of it, ValueError where it is gone."""
    left = STOCK[what] - count
    if left < 0:
        raise ValueError(f"no {what} is left for {made.name}")
    return JsonResponse({"name": made.name, "at": made.at.timestamp(), "left": left, "wall": time.time_ns()})


urlpatterns = [path("order/<what>", order), path("async/<what>", order_async)]
asgi = get_asgi_application()
wsgi = get_wsgi_application()
