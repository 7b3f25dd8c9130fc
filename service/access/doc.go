// Package access decides who may do what with the tables of a service, and where a service may listen.
//
// A [Policy] is made from a file of tokens. A caller shows one as "authorization: Bearer TOKEN", or as the password of
// HTTP's basic authentication; each has a name, and globs of the tables that it may read and write:
//
//	tokens:
//	  - name: trainer
//	    token_sha256: 8f14e45fceea167a5a36dedd4bea2543c1f2a5e0c4c1d9f9a1b0e2b6b7b2d1aa
//	    read: ["*"]
//	    write: ["math-*"]
//	  - name: generators
//	    token_file: /run/secrets/generators   # relative paths begin at this file's folder
//	    write: ["math-*"]
//	  - name: dashboard
//	    certificate: grafana                   # the common name of a client certificate stands for the token
//	    read: ["*"]
//
// To read is to sample, list, export and see statistics; to write is to insert, advance, rewind, update priorities, create,
// drop, save and restore tables, and to start groups. Neither implies the other. An entry with a certificate and a token wants both.
//
// [Policy.Unary] and [Policy.Stream] authenticate gRPC calls, [Policy.HTTP] pages; [Policy.Authorize] tells what the
// authenticated caller may do, by the tokens as they are at that moment: one that was taken out of the file ends with the next
// request of the streams opened with it. [Certificates] holds the service's TLS certificate. Both notice within a second that
// their files have changed, and go on with what they had where the new files cannot be used.
//
// [Listen] is the only way to a socket: beyond loopback it wants TLS and tokens (invariant 10), and makes unix
// sockets that only their owner can open.
package access
