/*-------------------------------------------------------------------------
 *
 * text.c
 *		From the text of a plain value to a sealed value.
 *
 * PostgreSQL takes as long to parse a date or a number as the cipher to seal it,
 * and makes a numeric only for packing.c to take it apart.  The usual forms of
 * dates and numbers are parsed here; the memo has the sealed values of those that
 * repeat.  All other forms go through the input function of the base type.
 *
 * May use: value.c, form.c and what is below them.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "catalog/pg_type.h"
#include "utils/date.h"
#include "utils/datetime.h"

/*
 * False for what only date_in() may judge: most dates depend on settings, one of the form
 * YYYY-MM-DD never does.
 */
static bool
date_of(const char *text, int64 *value)
{
	int			parts[] = {0, 0, 0};
	int			part = 0;
	int			i;

	for (i = 0; i < 10; i++)
		if (i == 4 || i == 7)
		{
			if (text[i] != '-')
				return false;
			part++;
		}
		else if (text[i] < '0' || text[i] > '9')
			return false;
		else
			parts[part] = parts[part] * 10 + (text[i] - '0');
	if (text[10] != '\0' || parts[0] < 1 || parts[1] < 1 || parts[1] > MONTHS_PER_YEAR || parts[2] < 1 ||
		parts[2] > day_tab[isleap(parts[0])][parts[1] - 1])
		return false;
	*value = date2j(parts[0], parts[1], parts[2]) - POSTGRES_EPOCH_JDATE;
	return true;
}

/* False for what only int8in() may judge: more than a sign and 18 digits. */
static bool
int8_of(const char *text, int64 *value)
{
	bool		negative = *text == '-';
	const char *begin = text + negative;
	const char *p = begin;
	int64		number = 0;

	while (*p >= '0' && *p <= '9' && p - begin < 18)
		number = number * 10 + (*p++ - '0');
	*value = negative ? -number : number;
	return p > begin && *p == '\0';
}

/* The sealed value of a text; by the input function of the base type if its form is not usual. */
Datum
pgseal_seal_text(SealedType *type, char *text, int32 typmod)
{
	int64		number;
	uint64		packed;
	uint32		display_scale;

	if (type->mode == SEAL_FORMAT)
		switch (type->base)
		{
			case INT4OID:
				if (int8_of(text, &number) && number == (int32) number)
					return pgseal_seal(type, Int32GetDatum((int32) number));
				break;
			case INT8OID:
				if (int8_of(text, &number))
					return pgseal_seal(type, Int64GetDatum(number));
				break;
			case DATEOID:
				if (date_of(text, &number))
					return pgseal_seal(type, Int32GetDatum((int32) number));
				break;
			case NUMERICOID:
				if (pgseal_numeric_pack_text(text, typmod, &packed, &display_scale))
					return pgseal_seal_packed(type, packed, display_scale);
				break;
			default:
				break;
		}
	pgseal_form_refuse_text(type, text);
	/* textin() would only copy the text. */
	if (type->base == TEXTOID)
		return pgseal_seal_characters(type, text);
	return pgseal_seal(type, InputFunctionCall(&type->base_in, text, type->base_ioparam, typmod));
}
