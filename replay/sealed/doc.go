// Package sealed is the envelope of what tables and buffers of prompts are saved as. What is damaged, cut off, foreign or of another format is
// refused before it is decoded, and no more is read than the snapshot.
//
// Every snapshot begins with 7 bytes of magic and one of the format's version. What follows is one of two, all numbers little-endian:
//
//   - a value, for [Format.Write] and [Format.Open]: the length and the CRC-32C of what follows, and a gob stream of the value;
//   - a stream of any length, for [Format.NewWriter] and [Format.NewReader]: chunks of up to 64 KiB, each behind its length and the CRC-32C of all
//     that came before and of itself, the last one empty. Both ends need memory for one chunk, and a chunk that is missing, doubled or out of
//     its place is damage as any other.
//
// Whether a value that decodes also makes sense is for its reader to say.
package sealed
