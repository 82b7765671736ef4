/*-------------------------------------------------------------------------
 *
 * memo.c
 *		The last results of the deterministic ciphers of a type.
 *
 * FF1 is a chain of ten AES operations, each on the result of the one before,
 * and many columns repeat few values: dates, quantities, codes, foreign keys.  A
 * backend that seals or opens many values of a type therefore keeps the last
 * results in a hash table with one entry for each hash value.  The table belongs
 * to a type: every new reading of the catalog, and so every change of keys,
 * drops it.  It holds plain values and lies in the pages of secret.c.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

/* A type gets a table after so many values: a connection that uses a few rows needs none. */
#define FIRST_USES 256

#define STRING_BITS 11			/* 2,048 pairs, 196 kB */

/* The value of `uses` after pgseal_memo_end(). */
#define ENDED PG_UINT32_MAX

/*
 * Makes the table, all zeros; false before FIRST_USES, after the end, or without memory.  It is
 * optional.
 */
bool
pgseal_memo_make(Memo *memo, Size len)
{
	if (memo->uses < FIRST_USES)
	{
		memo->uses++;
		return false;
	}
	if (memo->uses == ENDED)
		return false;
	memo->table.any = pgseal_secret_alloc(len);
	memo->len = len;
	if (memo->table.any == NULL)
		memo->uses = 0;			/* try again, but not with each value */
	return memo->table.any != NULL;
}

/* Drops the table for good: code that still holds this type goes on without it. */
void
pgseal_memo_end(Memo *memo)
{
	pgseal_secret_free(memo->table.any, memo->len);
	memo->table.any = NULL;
	memo->uses = ENDED;
}

StaticAssertDecl(MEMO_PLAIN_BYTES + PGSEAL_COLUMN_DET_OVERHEAD_MAX <= MEMO_STRING_BYTES, "a sealed string fits");

/*
 * The entry for a string, NULL if there is no table (yet) or the string is longer than `max_len`.
 */
MemoString *
pgseal_memo_string(Memo *memo, const uint8 *from, size_t len, size_t max_len)
{
	uint64		words[MEMO_STRING_BYTES / 8];
	uint64		hash = len;

	if (len > max_len)
		return NULL;
	if (unlikely(memo->table.any == NULL) && !pgseal_memo_make(memo, sizeof(MemoString) << STRING_BITS))
		return NULL;
	memset(words, 0, sizeof(words));
	memcpy(words, from, len);
	for (int i = 0; i * 8 < len; i++)
		hash = ((hash ^ words[i]) * MEMO_HASH_FACTOR) ^ (hash >> 29);
	return &memo->table.strings[(hash * MEMO_HASH_FACTOR) >> (64 - STRING_BITS)];
}

bool
pgseal_memo_has(const MemoString *memo, const uint8 *from, size_t len)
{
	return memo->from_len == len && (memo->from_len | memo->to_len) != 0 && memcmp(memo->from, from, len) == 0;
}

void
pgseal_memo_set(MemoString *memo, const uint8 *from, size_t len, const uint8 *to, size_t to_len)
{
	memo->from_len = len;
	memo->to_len = to_len;
	memcpy(memo->from, from, len);
	memcpy(memo->to, to, to_len);
}
