//! The fields of what an agent reports: their types, their defaults, and what makes one
//! malformed (contract, section 6).

use std::borrow::Cow;

use super::part::Part;
use super::record::{Record, Schema};
use crate::call::ModelRef;
use crate::exchange::model_ref_name;
use crate::json::{Kind, Raw};
use crate::value::{Key, Members, Value, unique_members};

/// What an agent reported has a wrong type or breaks a rule: the name of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// What a field may hold. A null is a missing field: it gets its default.
#[derive(Clone, Copy, Debug)]
pub enum FieldType {
    /// A string, or null.
    Text,
    /// A string that must be there.
    RequiredText,
    /// A finite number, or null.
    Number,
    /// A finite number that must be there.
    RequiredNumber,
    /// A finite number >= 0, or null.
    Amount,
    /// An integer, or null.
    Integer,
    /// An integer >= 0, or null.
    Count,
    /// An integer of at least this that must be there.
    RequiredCount(u8),
    /// A bool, or null.
    Flag,
    /// A model server, or null.
    ModelRef,
    /// An object of other fields; all of them missing where it is.
    Nested(&'static Schema),
    /// One of the listed words, or null.
    Word(&'static [&'static str]),
    /// One of the listed words that must be there.
    RequiredWord(&'static [&'static str]),
    /// One of the listed words, `unknown` where it is missing.
    Status(&'static [&'static str]),
    /// A reference to a model call, or null.
    Reference,
    /// References to model calls, none where it is missing.
    References,
    /// A list that is passed through, empty where it is missing.
    Items,
    /// Any value that is passed through, or null.
    Any,
}

/// A field's value.
#[derive(Clone, Debug)]
pub enum Field<'a> {
    /// A value as it came, or its default.
    Plain(Value<'a>),
    /// A reference.
    Reference(Option<Box<Reference<'a>>>),
    /// References.
    References(Vec<Reference<'a>>),
    /// An object of other fields.
    Nested(Box<Record<'a>>),
}

/// The keys of a reference.
const NAMES: [&str; 3] = ["model_call_id", "model_ref", "response_id"];

/// A reference to a model call: a call id, or a model and a response id.
#[derive(Clone, Debug, Default)]
pub struct Reference<'a> {
    /// The call's id.
    pub model_call_id: Option<Cow<'a, str>>,
    /// The model server.
    pub model_ref: Option<ModelRef<'a>>,
    /// The response's id.
    pub response_id: Option<Cow<'a, str>>,
    /// Keys that the contract does not know.
    pub extra: Members<'a>,
    /// The captured call it means, once it is resolved: an index.
    pub resolved: Option<usize>,
    /// The three keys as they came, from who sent the reference or from the call that it
    /// means: one that is not resolved stays as it was.
    pub came_as: Option<[Option<Raw<'a>>; 3]>,
}

impl<'a> Reference<'a> {
    fn parse(
        part: Part<'_, 'a>,
        name: &'static str,
        non_finite: NonFinite<'_>,
    ) -> Result<Self, Malformed> {
        let wrong = Malformed(name);
        if !part.raw().is_object() {
            return Err(wrong);
        }
        let text = |value: Raw<'a>| match value.kind() {
            Kind::Null => Ok(None),
            // An empty id is no id.
            Kind::String => Ok(value.as_str().filter(|text| !text.is_empty())),
            _ => Err(wrong),
        };
        let mut reference = Self::default();
        let mut came_as = [None; 3];
        for (key, value) in part.members() {
            let value = value.raw();
            match NAMES.iter().position(|name| key.is_str(name)) {
                Some(_) if non_finite.holds(value) => return Err(wrong),
                Some(part) => came_as[part] = Some(value),
                None => reference.extra.push((Key::Raw(key), Value::Raw(value))),
            }
        }
        unique_members(&mut reference.extra);
        let [call, model, response] = came_as.map(|part| part.unwrap_or(Raw::NULL));
        reference.model_call_id = text(call)?;
        reference.response_id = text(response)?;
        if !model.is_null() {
            let name = model_ref_name(model).ok_or(wrong)?;
            reference.model_ref = Some(ModelRef { name });
        }
        reference.came_as = Some(came_as);
        let keyed = reference.model_ref.is_some() && reference.response_id.is_some();
        if reference.model_call_id.is_none() && !keyed {
            return Err(wrong);
        }
        Ok(reference)
    }

    /// What a gap about this reference says: the call id, else the response id.
    #[must_use]
    pub fn detail(&self) -> Option<Cow<'a, str>> {
        self.model_call_id
            .clone()
            .or_else(|| self.response_id.clone())
    }

    /// The reference as it stands in records.
    #[must_use]
    pub fn to_value(&self, extra: bool) -> Value<'a> {
        let parts = match self.came_as {
            Some(parts) => parts.map(Value::raw),
            None => [
                Value::text(self.model_call_id.clone()),
                self.model_ref
                    .as_ref()
                    .map_or(Value::Null, ModelRef::to_value),
                Value::text(self.response_id.clone()),
            ],
        };
        let mut members = Members::with_capacity(NAMES.len() + self.extra.len());
        members.extend(NAMES.map(Key::Name).into_iter().zip(parts));
        if extra {
            members.extend(self.extra.iter().cloned());
        }
        Value::Object(members)
    }
}

/// Where numbers in the text stand that were NaN or infinite before they became `null`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NonFinite<'a> {
    /// The whole text.
    pub text: &'a [u8],
    /// Offsets into it, ascending.
    pub offsets: &'a [usize],
}

impl NonFinite<'_> {
    /// Whether this `null` was such a number.
    #[must_use]
    pub fn holds(self, value: Raw<'_>) -> bool {
        if self.offsets.is_empty() {
            return false;
        }
        let start = self.text.as_ptr().addr();
        let at = value.bytes().as_ptr().addr().wrapping_sub(start);
        self.offsets.binary_search(&at).is_ok()
    }
}

/// Whether it is an integer of at least `least`, however long.
fn is_count(raw: Raw<'_>, least: u8) -> bool {
    raw.is_integer()
        && raw
            .as_f64()
            .is_some_and(|number| number >= f64::from(least))
}

impl FieldType {
    /// A field's value, or that it is malformed.
    ///
    /// # Errors
    /// A wrong type, or a value that is not allowed.
    pub fn parse<'a>(
        self,
        name: &'static str,
        part: Option<Part<'_, 'a>>,
        non_finite: NonFinite<'_>,
    ) -> Result<Field<'a>, Malformed> {
        let wrong = Malformed(name);
        let is_non_finite = part.is_some_and(|part| non_finite.holds(part.raw()));
        if is_non_finite && !matches!(self, Self::Any) {
            return Err(wrong);
        }
        let Some(part) = part.filter(|part| !part.raw().is_null()) else {
            return self.missing().ok_or(wrong);
        };
        let raw = part.raw();
        let number = || raw.as_f64().filter(|number| number.is_finite());
        let fits = match self {
            Self::Text => raw.kind() == Kind::String,
            // An empty id is no id.
            Self::RequiredText => raw.kind() == Kind::String && !raw.is_str(""),
            Self::Number | Self::RequiredNumber => number().is_some(),
            Self::RequiredCount(least) => is_count(raw, least),
            Self::Flag => raw.as_bool().is_some(),
            Self::ModelRef => model_ref_name(raw).is_some(),
            Self::Nested(schema) => {
                let record = Record::parse(schema, part, non_finite)?;
                return Ok(Field::Nested(Box::new(record)));
            }
            Self::Amount => number().is_some_and(|number| number >= 0.0),
            Self::Integer => raw.is_integer(),
            Self::Count => is_count(raw, 0),
            Self::Word(words) | Self::RequiredWord(words) | Self::Status(words) => {
                words.iter().any(|word| raw.is_str(word))
            }
            Self::Items => raw.kind() == Kind::Array,
            Self::Any => true,
            Self::Reference => {
                let reference = Reference::parse(part, name, non_finite)?;
                return Ok(Field::Reference(Some(Box::new(reference))));
            }
            Self::References => {
                let mut references = Vec::with_capacity(part.count());
                for element in part.elements().ok_or(wrong)? {
                    references.push(Reference::parse(element, name, non_finite)?);
                }
                return Ok(Field::References(references));
            }
        };
        if fits {
            Ok(Field::Plain(Value::Raw(raw)))
        } else {
            Err(wrong)
        }
    }

    /// The default of a missing field; none where it must be there.
    #[must_use]
    pub fn missing<'a>(self) -> Option<Field<'a>> {
        Some(match self {
            Self::RequiredText
            | Self::RequiredWord(_)
            | Self::RequiredNumber
            | Self::RequiredCount(_) => return None,
            Self::Nested(schema) => Field::Nested(Box::new(Record::missing(schema)?)),
            Self::Status(_) => Field::Plain(Value::Str(Cow::Borrowed("unknown"))),
            Self::Items => Field::Plain(Value::Array(Vec::new())),
            Self::Reference => Field::Reference(None),
            Self::References => Field::References(Vec::new()),
            _ => Field::Plain(Value::Null),
        })
    }
}

impl<'a> Field<'a> {
    /// The field as it stands in records; `extra` keeps unknown keys of references.
    #[must_use]
    pub fn to_value(&self, extra: bool) -> Value<'a> {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Reference(None) => Value::Null,
            Self::Reference(Some(reference)) => reference.to_value(extra),
            Self::References(references) => {
                Value::Array(references.iter().map(|r| r.to_value(extra)).collect())
            }
            Self::Nested(record) => record.to_value(extra),
        }
    }

    /// The field's string.
    #[must_use]
    pub fn text(&self) -> Option<Cow<'a, str>> {
        match self {
            Self::Plain(Value::Raw(raw)) => raw.as_str(),
            Self::Plain(Value::Str(text)) => Some(text.clone()),
            _ => None,
        }
    }

    /// The field's number.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Plain(Value::Raw(raw)) => raw.as_f64(),
            _ => None,
        }
    }

    /// The field's text.
    #[must_use]
    pub fn raw(&self) -> Option<Raw<'a>> {
        match self {
            Self::Plain(Value::Raw(raw)) => Some(*raw),
            _ => None,
        }
    }

    /// Whether it is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        match self {
            Self::Plain(Value::Raw(raw)) => raw.is_null(),
            Self::Plain(Value::Null) | Self::Reference(None) => true,
            _ => false,
        }
    }
}
