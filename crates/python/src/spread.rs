//! Takes the arguments of a call apart: records and lists into the arrays and numbers that they are
//! made of. What does not fit is left to Python, which reports it (`kernel/parameters.py`).

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

/// The parameters of a kernel as trees. Each is `None` for an array or a number;
/// `("record", class, is optional, [(field, tree), …])`; or
/// `("list", is optional, length or None, [tree of each item, or of all])`.
#[pyclass(frozen, module = "tessera._core")]
pub struct Spread {
    nodes: Vec<Node>,
}

enum Node {
    Leaf,
    Record { class: Py<PyAny>, optional: bool, fields: Vec<(Py<PyString>, Node)> },
    List { optional: bool, length: Option<usize>, items: Vec<Node> },
}

/// What stands in a form for a record or a list that is None.
const ABSENT: i64 = -1;

#[tessera_entry::entry]
#[pymethods]
impl Spread {
    #[new]
    fn new(nodes: &Bound<'_, PyList>) -> PyResult<Self> {
        Ok(Self { nodes: nodes.iter().map(|n| Node::new(&n)).collect::<PyResult<_>>()? })
    }

    /// The form of a call, and its arrays and numbers in order; `None` for a call that has to be looked
    /// at more closely.
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)>> {
        if args.len() != self.nodes.len() {
            return Ok(None);
        }
        let (mut out, mut form) = (Vec::with_capacity(32), Vec::new());
        for (node, value) in self.nodes.iter().zip(args.iter_borrowed()) {
            if !node.spread(&value, &mut out, &mut form)? {
                return Ok(None);
            }
        }
        Ok(Some((PyTuple::new(py, form)?, PyTuple::new(py, out)?)))
    }

    /// A class may hold the kernel that takes its records.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.nodes.iter().try_for_each(|node| node.traverse(&visit))
    }
}

impl Node {
    fn new(row: &Bound<'_, PyAny>) -> PyResult<Self> {
        if row.is_none() {
            return Ok(Node::Leaf);
        }
        let row = row.cast::<PyTuple>()?;
        if row.get_item(0)?.extract::<&str>()? == "record" {
            let (_, class, optional, fields): (
                Bound<'_, PyAny>,
                Py<PyAny>,
                bool,
                Bound<'_, PyList>,
            ) = row.extract()?;
            let field = |pair: Bound<'_, PyAny>| {
                let (name, node): (Bound<'_, PyString>, Bound<'_, PyAny>) = pair.extract()?;
                Ok((PyString::intern(name.py(), name.to_str()?).unbind(), Node::new(&node)?))
            };
            let fields = fields.iter().map(field).collect::<PyResult<_>>()?;
            return Ok(Node::Record { class, optional, fields });
        }
        let (_, optional, length, items): (
            Bound<'_, PyAny>,
            bool,
            Option<usize>,
            Bound<'_, PyList>,
        ) = row.extract()?;
        let items = items.iter().map(|item| Node::new(&item)).collect::<PyResult<_>>()?;
        Ok(Node::List { optional, length, items })
    }

    /// Whether the value is what the parameter takes.
    fn spread<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        out: &mut Vec<Bound<'py, PyAny>>,
        form: &mut Vec<i64>,
    ) -> PyResult<bool> {
        let py = value.py();
        match self {
            Node::Leaf => out.push(value.clone()),
            Node::Record { optional: true, .. } | Node::List { optional: true, .. }
                if value.is_none() =>
            {
                form.push(ABSENT);
            }
            Node::Record { class, optional, fields } => {
                if !value.get_type().is(class.bind(py)) {
                    return Ok(false);
                }
                if *optional {
                    form.push(0);
                }
                for (name, node) in fields {
                    let Ok(inner) = value.getattr(name.bind(py)) else { return Ok(false) };
                    if !node.spread(&inner, out, form)? {
                        return Ok(false);
                    }
                }
            }
            Node::List { length, items, .. } => {
                let parts: Vec<Bound<'py, PyAny>> = if let Ok(list) = value.cast_exact::<PyList>() {
                    list.iter().collect()
                } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
                    tuple.iter().collect()
                } else {
                    return Ok(false);
                };
                if length.is_some_and(|n| n != parts.len()) {
                    return Ok(false);
                }
                form.push(parts.len() as i64);
                for (place, part) in parts.iter().enumerate() {
                    let Some(node) = items.get(if length.is_some() { place } else { 0 }) else {
                        return Ok(false);
                    };
                    if !node.spread(part, out, form)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Node::Leaf => Ok(()),
            Node::Record { class, fields, .. } => {
                visit.call(class)?;
                fields.iter().try_for_each(|(_, node)| node.traverse(visit))
            }
            Node::List { items, .. } => items.iter().try_for_each(|node| node.traverse(visit)),
        }
    }
}
