// Package sealed is the envelope of what tables and buffers of prompts are saved as: a header and a gob stream of one
// value, and nothing else. What is damaged, cut off, foreign or of another format is refused before it is decoded.
//
// The header is 7 bytes of magic and one of the format's version, then the length and the CRC-32C of what follows, both
// little-endian. Whether a value that decodes also makes sense is for its reader to say.
package sealed
