/*-------------------------------------------------------------------------
 *
 * form.c
 *		The sealed form of a value: how it looks outside the server with
 *		pgseal.format = sealed, as text and in binary.
 *
 * May use: keys.c for its errors.  It needs no key: the bytes are those of the
 * ciphertext.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "catalog/pg_type.h"
#include "libpq/pqformat.h"
#include "utils/builtins.h"

/* What every sealed form begins with. */
#define TEXT_MARK "pgseal:1:"
#define TEXT_MARK_LEN 9
#define BINARY_MARK "PGSEAL1\n"
#define BINARY_MARK_LEN 8

static size_t
fixed_len(SealedType *type)
{
	return type->layout == LAYOUT_VARLENA ? 0 : type->layout == LAYOUT_INT4 ? 4 : 8;
}

/*
 * A datum from the bytes of the sealed form.  Checks what can be checked without a key: length,
 * header, mode.
 */
static Datum
datum_of_bytes(SealedType *type, const uint8 *bytes, size_t len)
{
	uint64		value = 0;
	struct varlena *result;
	int			mode;
	size_t		suffix = type->mode == SEAL_DETERMINISTIC && type->base == NUMERICOID ? 2 : 0;

	if (type->layout == LAYOUT_VARLENA)
	{
		if (OidIsValid(type->base) &&
			(len < suffix ||
			 pgseal_column_inspect(bytes, len - suffix, &mode, NULL, NULL) != PGSEAL_COLUMN_OK ||
			 mode != (type->mode == SEAL_RANDOM ? PGSEAL_COLUMN_MODE_RND : PGSEAL_COLUMN_MODE_DET)))
			pgseal_fail(PGSEAL_COLUMN_NOT_SEALED, type, "read");
		result = palloc(VARHDRSZ + len);
		SET_VARSIZE(result, VARHDRSZ + len);
		memcpy(VARDATA(result), bytes, len);
		return PointerGetDatum(result);
	}
	if (len != fixed_len(type))
		pgseal_fail(PGSEAL_COLUMN_NOT_SEALED, type, "read");
	for (size_t i = 0; i < len; i++)
		value = value << 8 | bytes[i];
	return len == 4 ? Int32GetDatum((int32) (uint32) value) : Int64GetDatum((int64) value);
}

static const uint8 *
bytes_of_datum(SealedType *type, Datum sealed, uint8 buffer[8], size_t *len)
{
	uint64		value;

	if (type->layout == LAYOUT_VARLENA)
	{
		struct varlena *v = PG_DETOAST_DATUM_PACKED(sealed);

		*len = VARSIZE_ANY_EXHDR(v);
		return (const uint8 *) VARDATA_ANY(v);
	}
	*len = fixed_len(type);
	value = *len == 4 ? (uint32) DatumGetInt32(sealed) : (uint64) DatumGetInt64(sealed);
	for (size_t i = *len; i > 0; i--)
	{
		buffer[i - 1] = (uint8) value;
		value >>= 8;
	}
	return buffer;
}

/* A datum from its sealed form in text. */
Datum
pgseal_form_from_text(SealedType *type, const char *text)
{
	size_t		hex_len = strlen(text);
	uint8	   *bytes;
	size_t		len;

	if (strncmp(text, TEXT_MARK, TEXT_MARK_LEN) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid sealed form of a value of type %s", type->name),
				 errdetail("With pgseal.format = sealed, values are read as ciphertext only."),
				 errhint("SET pgseal.format = plain to give plain values.")));
	text += TEXT_MARK_LEN;
	hex_len -= TEXT_MARK_LEN;
	if (hex_len % 2 != 0 || strspn(text, "0123456789abcdef") != hex_len)
		pgseal_fail(PGSEAL_COLUMN_NOT_SEALED, type, "read");
	len = hex_len / 2;
	bytes = palloc(len + 1);
	hex_decode(text, hex_len, (char *) bytes);
	return datum_of_bytes(type, bytes, len);
}

/* The error about a value in the sealed form where a plain one is read. */
static void
refuse(SealedType *type)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("value for type %s is in the sealed form, and pgseal.format is plain", type->name),
			 errhint("SET pgseal.format = sealed to load it (PGOPTIONS='-c pgseal.format=sealed'). A plain text that begins like this can be stored with a cast from text.")));
}

/* Refuses the text of a plain value that begins like a sealed form. */
void
pgseal_form_refuse_text(SealedType *type, const char *text)
{
	if (unlikely(text[0] == TEXT_MARK[0]) && strncmp(text, TEXT_MARK, TEXT_MARK_LEN) == 0)
		refuse(type);
}

/* The sealed form of a datum in text. */
char *
pgseal_form_to_text(SealedType *type, Datum sealed)
{
	uint8		buffer[8];
	size_t		len;
	const uint8 *bytes = bytes_of_datum(type, sealed, buffer, &len);
	char	   *text = palloc(TEXT_MARK_LEN + 2 * len + 1);

	memcpy(text, TEXT_MARK, TEXT_MARK_LEN);
	hex_encode((const char *) bytes, len, text + TEXT_MARK_LEN);
	text[TEXT_MARK_LEN + 2 * len] = '\0';
	return text;
}

/* Whether a message goes on with the binary sealed form. */
static bool
is_marked(StringInfo buf)
{
	return buf->len - buf->cursor >= BINARY_MARK_LEN &&
		memcmp(buf->data + buf->cursor, BINARY_MARK, BINARY_MARK_LEN) == 0;
}

/* A datum from its sealed form in binary: the rest of the message. */
Datum
pgseal_form_receive(SealedType *type, StringInfo buf)
{
	size_t		len;

	if (!is_marked(buf))
		pgseal_fail(PGSEAL_COLUMN_NOT_SEALED, type, "read");
	len = buf->len - buf->cursor - BINARY_MARK_LEN;
	(void) pq_getmsgbytes(buf, BINARY_MARK_LEN);
	return datum_of_bytes(type, (const uint8 *) pq_getmsgbytes(buf, len), len);
}

/*
 * Refuses a plain value that begins like a binary sealed form.  A plain number
 * of 8 bytes may look like the mark: only a longer value is refused.
 */
void
pgseal_form_refuse_binary(SealedType *type, StringInfo buf)
{
	if (is_marked(buf) && buf->len - buf->cursor > BINARY_MARK_LEN)
		refuse(type);
}

/* The sealed form of a datum in binary. */
bytea *
pgseal_form_send(SealedType *type, Datum sealed)
{
	StringInfoData buf;
	uint8		buffer[8];
	size_t		len;
	const uint8 *bytes = bytes_of_datum(type, sealed, buffer, &len);

	pq_begintypsend(&buf);
	pq_sendbytes(&buf, BINARY_MARK, BINARY_MARK_LEN);
	pq_sendbytes(&buf, (const void *) bytes, len);
	return pq_endtypsend(&buf);
}
