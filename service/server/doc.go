// Package server is a whole Reprise server in one value: tables over Arrow Flight with TLS and tokens, and a second
// port for the dashboard, metrics and health.
//
// [Config] is the configuration file of `reprise serve`; [Read] and [ParseTable] read it and report what is wrong by
// key. [Start] binds every address before it opens a journal, so a server that may not listen changes nothing on disk.
// [Server.Stop] lets calls finish, flushes the journals, and closes the pages last. What is in a table, and what a call
// does, is package [github.com/reprise-rl/reprise/service].
package server
