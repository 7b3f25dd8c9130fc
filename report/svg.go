package report

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"regexp"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// inline turns a drawn canvas into an SVG element for the page: no XML header, as wide as its
// place allows, colours by the page's style sheet, text in the reader's own sans-serif font (the
// drawing library names fonts that few systems have), and a title for those who cannot see it.
func inline(c *vgsvg.Canvas, width, height vg.Length, class, title string) (template.HTML, error) {
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw %q: %w", title, err)
	}
	text := b.String()
	_, text, found := strings.Cut(text, `xmlns:xlink="http://www.w3.org/1999/xlink">`)
	if !found {
		return "", fmt.Errorf("draw %q: the SVG has no opening element", title)
	}
	text = regexp.MustCompile(`font-family:[^;"]*;font-variant:[^;"]*;`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`font-weight:(normal|400);|font-style:normal;?`).ReplaceAllString(text, "")
	known := paints()
	text = regexp.MustCompile(`(fill|stroke):#([0-9A-F]{6})`).ReplaceAllStringFunc(text, func(style string) string {
		property, hex, _ := strings.Cut(style, ":#")
		p, ok := known[hex]
		switch {
		case !ok:
			return style
		case p.opacity == 1:
			return fmt.Sprintf("%s:var(--%s)", property, p.variable)
		default:
			return fmt.Sprintf("%s:var(--%s);%s-opacity:%g", property, p.variable, property, p.opacity)
		}
	})
	text = regexp.MustCompile(`\s*\n\s*`).ReplaceAllString(text, "\n")
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" class="%s" viewBox="0 0 %g %g" role="img"><title>%s</title>`,
		class, width.Points(), height.Points(), html.EscapeString(title))
	return template.HTML(head + text), nil
}
