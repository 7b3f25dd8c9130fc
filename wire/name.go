package wire

import "fmt"

// maxName is how long the name of a table or of a column may be, in bytes.
const maxName = 128

// CheckName reports what is wrong with the name of a table, or of a checkpoint: names stand in paths of files and of Flight
// descriptors.
func CheckName(name string) error {
	if !goodName(name) {
		return Errorf(Invalid, "name: %q: want 1 to %d letters, digits, - _ and ., not beginning with a dot", clip(name), maxName)
	}
	return nil
}

func goodName(name string) bool {
	if name == "" || len(name) > maxName || name[0] == '.' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

// clip shortens a value for an error's text.
func clip(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:most], len(text))
}
