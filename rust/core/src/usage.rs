//! Token accounting of the three dialects (contract, section 4, Tokens).

use crate::json::{Raw, Tape};
use crate::names::Name;

/// A number of tokens; unknown where the server said none, or no count.
pub type Count = Option<u128>;

/// What one call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub tokens_in: Count,
    /// Tokens the model produced, reasoning included.
    pub tokens_out: Count,
    /// Of those, reasoning.
    pub tokens_reasoning: Count,
    /// Both together.
    pub tokens_total: Count,
    /// Tokens of the prompt that came from a cache.
    pub cached_tokens: Count,
    /// Tokens of the prompt that went into a cache.
    pub cache_creation_tokens: Count,
}

/// A count is a JSON integer >= 0, never a bool or a float.
fn count(value: Raw<'_>) -> Count {
    if !value.is_integer() {
        return None;
    }
    match value.bytes() {
        b"-0" => Some(0),
        digits => std::str::from_utf8(digits).ok()?.parse().ok(),
    }
}

impl Usage {
    /// Reads `response.usage`; `node` is its place on the tape.
    #[must_use]
    pub fn read(tape: &Tape<'_, Name>, node: usize) -> Self {
        let field = |name: Name| count(tape.member(node, name));
        let detail = |details: Name, name: Name| {
            tape.get(node, details)
                .and_then(|inner| count(tape.member(inner, name)))
        };

        let input = field(Name::InputTokens);
        let prompt = field(Name::PromptTokens);
        let tokens_out = field(Name::OutputTokens).or_else(|| field(Name::CompletionTokens));
        let cache_read = field(Name::CacheReadInputTokens);
        let cache_creation = field(Name::CacheCreationInputTokens);
        let total = field(Name::TotalTokens);

        let mut tokens_in = input.or(prompt);
        let from_prompt = input.is_none() && prompt.is_some();
        if (cache_read.is_some() || cache_creation.is_some()) && !from_prompt {
            let cached = cache_read
                .unwrap_or(0)
                .saturating_add(cache_creation.unwrap_or(0));
            let already_in = total.is_some()
                && total == input.zip(tokens_out).and_then(|(i, o)| i.checked_add(o));
            if (tokens_in.is_some() || cached > 0) && !already_in {
                tokens_in = tokens_in.unwrap_or(0).checked_add(cached);
            }
        }

        let cached_tokens = [Name::PromptTokensDetails, Name::InputTokensDetails]
            .into_iter()
            .find_map(|details| {
                detail(details, Name::CachedTokens)
                    .or_else(|| detail(details, Name::CachedInputTokens))
            })
            .or(cache_read)
            .or_else(|| field(Name::CachedInputTokens))
            .or_else(|| field(Name::CachedTokens))
            .or_else(|| field(Name::PromptCacheHitTokens));

        Self {
            tokens_in,
            tokens_out,
            tokens_reasoning: detail(Name::OutputTokensDetails, Name::ReasoningTokens)
                .or_else(|| detail(Name::CompletionTokensDetails, Name::ReasoningTokens))
                .or_else(|| field(Name::ReasoningOutputTokens)),
            tokens_total: total.or_else(|| {
                tokens_in
                    .zip(tokens_out)
                    .and_then(|(i, o)| i.checked_add(o))
            }),
            cached_tokens,
            cache_creation_tokens: cache_creation,
        }
    }
}
