//! Names of parameters.

use tessera_frontend::axis_symbol;
use tessera_frontend::inner::shown;

#[test]
fn paths_are_shown_as_python_writes_them() {
    assert_eq!(shown("x"), "x");
    assert_eq!(shown("p.x"), "p.x");
    assert_eq!(shown("p.xs.0.y"), "p.xs[0].y");
    assert_eq!(axis_symbol("p.x", 1), "p__x_1");
}
