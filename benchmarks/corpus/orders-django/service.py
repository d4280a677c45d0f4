"""Orders that refer to products, in Django without its debug pages. PORT RATES"""

import sys
from wsgiref.simple_server import make_server

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rates import rate

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="none", DEBUG=False)
products = {"apple": 2}
orders: list[str] = []


def order(_request: HttpRequest) -> HttpResponse:
    orders.append("apple")
    return HttpResponse("ordered")


def delete(_request: HttpRequest) -> HttpResponse:
    products.pop("apple")
    return HttpResponse("deleted")


def total(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(rate() * sum(products[name] for name in orders)))


urlpatterns = [path("order", order), path("delete", delete), path("total", total)]
make_server("127.0.0.1", int(sys.argv[1]), get_wsgi_application()).serve_forever()
