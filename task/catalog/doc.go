// Package catalog finds tasks by name, for whoever has a configuration rather than a program.
//
// [Settings] returns the settings of a task, empty and ready to be decoded into: the name and the
// settings are one flat mapping, {name: arithmetic, operations: [add], max: 50}, so that a strict
// decoder refuses the keys of other tasks. The settings validate themselves, write out their
// defaults and make the task. [Verifier] returns the verifier of a task, which needs no settings.
package catalog
