// Package watch shows how a service does, over HTTP: /healthz says whether it is well, /metrics gives Prometheus what it
// counts, and / is a page for people.
//
// [New] makes a [Watch] of a function that observes the service; [Watch.ServeHTTP] answers, and [Watch.Run] notes now and then
// what has been counted, so that the page has rates of the last minutes. The page is made on the server: tables, and charts as SVG.
// A script of a few lines fetches its body anew every two seconds; without scripts the browser loads the page again. It asks nothing of any other host, and a content
// security policy holds it to that.
//
// Who calls is package access's to say: pages and metrics show the tables that the caller may read. /healthz answers everyone, since what
// looks after processes seldom has a token, but tells the reasons only to callers that are known.
package watch
