/*-------------------------------------------------------------------------
 *
 * text.c
 *		A sealed value from the text of its base type.
 *
 * Loads bring the same dates, quantities, codes and keys again and again, and
 * to read a date or a number costs as much as to seal it.  So a backend that
 * reads many values of a format-preserving type keeps the last texts with what
 * they became, and a text that comes again costs neither.  As the memo of
 * numbers, the table belongs to a type, ends with any change of keys, and
 * holds plain values: see memo.c and secret.c.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "catalog/pg_type.h"

#define TEXT_BITS 12			/* 4,096 pairs of texts, 256 kB */

#define HASH_FACTOR_1 UINT64CONST(0x9E3779B97F4A7C15)
#define HASH_FACTOR_2 UINT64CONST(0xC2B2AE3D27D4EB4F)

/* A text of 1 to 16 bytes as two words, which are its own together with its length. */
typedef struct Words
{
	uint64		first;
	uint64		last;
	uint32		len;
} Words;

static bool
words_of(const char *text, Words *words)
{
	size_t		len = strlen(text);
	uint32		halves[2] = {0, 0};

	if (len == 0 || len > 2 * sizeof(uint64))
		return false;
	words->len = (uint32) len;
	if (len >= sizeof(uint64))
	{
		memcpy(&words->first, text, sizeof(uint64));
		memcpy(&words->last, text + len - sizeof(uint64), sizeof(uint64));
		return true;
	}
	if (len >= sizeof(uint32))
	{
		memcpy(&halves[0], text, sizeof(uint32));
		memcpy(&halves[1], text + len - sizeof(uint32), sizeof(uint32));
	}
	else
	{
		halves[0] = (uint8) text[0];
		halves[1] = (uint32) (uint8) text[len / 2] << 8 | (uint8) text[len - 1];
	}
	words->first = (uint64) halves[1] << 32 | halves[0];
	words->last = 0;
	return true;
}

/* The two places of a text; NULL if there is no table (yet). */
static MemoText *
places_of(SealedType *type, const Words *words)
{
	MemoText   *table = pgseal_memo_table(&type->written, sizeof(MemoText) << (TEXT_BITS + 1));
	uint64		hash = words->first * HASH_FACTOR_1 ^ (words->last + words->len) * HASH_FACTOR_2;

	if (unlikely(table == NULL))
		return NULL;
	return table + 2 * ((hash ^ hash >> 29) * HASH_FACTOR_1 >> (64 - TEXT_BITS));
}

static bool
is_it(const MemoText *place, const Words *words, int32 typmod)
{
	return place->first == words->first && place->last == words->last && place->len == words->len &&
		place->typmod == typmod;
}

static bool
is_iso_date(const char *text, uint32 len)
{
	for (uint32 i = 0; i < len; i++)
		if (i == 4 || i == 7 ? text[i] != '-' : text[i] < '0' || text[i] > '9')
			return false;
	return len == 10;
}

/*
 * Whether a text of the type means the same at any time: settings have a say in most dates, and in timestamps.  The
 * input functions of these types read no catalog either, so that the table stays while they work.
 */
static bool
always_means_the_same(SealedType *type, const char *text, uint32 len)
{
	switch (type->base)
	{
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
			return true;
		case DATEOID:
			return is_iso_date(text, len);
		default:
			return false;
	}
}

static Datum
datum_of(SealedType *type, uint64 sealed)
{
	return type->layout == LAYOUT_INT4 ? Int32GetDatum((int32) sealed) : Int64GetDatum((int64) sealed);
}

/*
 * What a call site found of what it asked for lately, in the place of its fn_extra: a literal of a statement is a call
 * site too, and shall cost no memory.  One that finds little, a column of keys or prices perhaps, leaves the
 * table alone for a while: each question is a wait for memory, and each answer that is kept drives another out.
 */
typedef union Habit
{
	void	   *fn_extra;
	struct
	{
		uint16		asked;
		uint16		found;
		uint32		to_skip;
	}			lately;
} Habit;

StaticAssertDecl(sizeof(Habit) == sizeof(void *), "the habit of a call site fits into a pointer");

#define ASKED 4096				/* before it is judged */
#define FOUND_MIN (ASKED / 3)
#define SKIPPED 65536

static void
count_question(Habit *habit, bool found)
{
	habit->lately.found += found;
	if (++habit->lately.asked < ASKED)
		return;
	habit->lately.to_skip = habit->lately.found < FOUND_MIN ? SKIPPED : 0;
	habit->lately.asked = habit->lately.found = 0;
}

static Datum
seal_once(SealedType *type, char *text, int32 typmod)
{
	pgseal_refuse_sealed_form(type, text);
	return pgseal_seal_once(type, InputFunctionCall(&type->base_in, text, type->base_ioparam, typmod));
}

/* The sealed value of a text, by the input function of the base type; *fn_extra is that of the call site. */
Datum
pgseal_seal_text(SealedType *type, char *text, int32 typmod, void **fn_extra)
{
	Habit	   *habit = (Habit *) fn_extra;
	MemoText   *places;
	Words		words;
	Datum		sealed;

	if (type->mode != SEAL_FORMAT || !words_of(text, &words) || !always_means_the_same(type, text, words.len))
	{
		pgseal_refuse_sealed_form(type, text);
		return pgseal_seal(type, InputFunctionCall(&type->base_in, text, type->base_ioparam, typmod));
	}
	pgseal_ready_to_seal(type);
	if (habit->lately.to_skip > 0)
	{
		habit->lately.to_skip--;
		return seal_once(type, text, typmod);
	}
	places = places_of(type, &words);
	if (places == NULL)
		return seal_once(type, text, typmod);
	for (int i = 0; i < 2; i++)
		if (is_it(&places[i], &words, typmod))
		{
			count_question(habit, true);
			pgseal_counts.sealed++;
			return datum_of(type, places[i].sealed);
		}
	count_question(habit, false);
	sealed = seal_once(type, text, typmod);
	places[1] = places[0];
	places[0].first = words.first;
	places[0].last = words.last;
	places[0].len = words.len;
	places[0].typmod = typmod;
	places[0].sealed = type->layout == LAYOUT_INT4 ? (uint32) DatumGetInt32(sealed) : (uint64) DatumGetInt64(sealed);
	return sealed;
}
