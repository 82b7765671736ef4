"""Sealed columns through SQLAlchemy and Django, as columns of plain types, over psycopg with pgseal.base_types."""

import datetime
import decimal
import sys

import django
import sqlalchemy
from django.conf import settings
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

HOST, PORT = "127.0.0.1", sys.argv[1]
BORN, BALANCE = datetime.date(1815, 12, 10), decimal.Decimal("12.50")


class Base(DeclarativeBase):
    pass


class Card(Base):
    __tablename__ = "card"
    id: Mapped[int] = mapped_column(sqlalchemy.BigInteger, primary_key=True)
    holder: Mapped[str]
    balance: Mapped[decimal.Decimal] = mapped_column(sqlalchemy.Numeric(12, 2))
    born: Mapped[datetime.date]
    raw: Mapped[bytes]


engine = sqlalchemy.create_engine(
    f"postgresql+psycopg://postgres@{HOST}:{PORT}/postgres", connect_args={"options": "-c pgseal.base_types=on"}
)
with Session(engine) as session:
    session.add(Card(id=501, holder="Ada", balance=BALANCE, born=BORN, raw=b"\x00\xff"))
    session.commit()
with Session(engine) as session:
    card = session.scalars(sqlalchemy.select(Card).where(Card.id == 501, Card.born == BORN).order_by(Card.id)).one()
    assert (card.holder, card.balance, card.born, card.raw) == ("Ada", BALANCE, BORN, b"\x00\xff"), card
    card.holder = "Grace"
    session.commit()
    assert session.scalar(sqlalchemy.select(sqlalchemy.func.count()).where(Card.holder.in_(["Grace", "x"]))) == 1
print("SQLAlchemy", sqlalchemy.__version__, "passed")

settings.configure(
    INSTALLED_APPS=[],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "postgres",
            "HOST": HOST,
            "PORT": PORT,
            "OPTIONS": {"options": "-c pgseal.base_types=on"},
        }
    },
)
django.setup()
from django.db import models  # noqa: E402


class DjangoCard(models.Model):
    id = models.BigIntegerField(primary_key=True)
    holder = models.TextField()
    balance = models.DecimalField(max_digits=12, decimal_places=2)
    born = models.DateField()
    raw = models.BinaryField()

    class Meta:
        app_label = "cards"
        managed = False
        db_table = "card"


DjangoCard.objects.create(id=601, holder="Ada", balance=BALANCE, born=BORN, raw=b"\x00\xff")
card = DjangoCard.objects.filter(id__in=[601, 602], holder="Ada").order_by("id").get()
assert (card.id, card.balance, card.born, bytes(card.raw)) == (601, BALANCE, BORN, b"\x00\xff"), card
card.holder = "Grace"
card.save()
assert DjangoCard.objects.filter(holder="Grace", id=601).count() == 1
assert list(DjangoCard.objects.filter(id=601).values_list("balance", flat=True)) == [BALANCE]
print("Django", django.get_version(), "passed")
