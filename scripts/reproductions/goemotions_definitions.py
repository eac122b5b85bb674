"""Definitions of the emotions of GoEmotions, in the order of their class ids.

Source: D. Demszky et al., "GoEmotions: A Dataset of Fine-Grained Emotions", ACL 2020, appendix. It
does not define `"neutral"`; that definition is our own.
"""

DEFINITIONS = {
    "admiration": "Finding something impressive or worthy of respect.",
    "amusement": "Finding something funny or being entertained.",
    "anger": "A strong feeling of displeasure or antagonism.",
    "annoyance": "Mild anger, irritation.",
    "approval": "Having or expressing a favorable opinion.",
    "caring": "Displaying kindness and concern for others.",
    "confusion": "Lack of understanding, uncertainty.",
    "curiosity": "A strong desire to know or learn something.",
    "desire": "A strong feeling of wanting something or wishing for something to happen.",
    "disappointment": "Sadness or displeasure caused by the nonfulfillment of one's hopes or "
    "expectations.",
    "disapproval": "Having or expressing an unfavorable opinion.",
    "disgust": "Revulsion or strong disapproval aroused by something unpleasant or offensive.",
    "embarrassment": "Self-consciousness, shame, or awkwardness.",
    "excitement": "Feeling of great enthusiasm and eagerness.",
    "fear": "Being afraid or worried.",
    "gratitude": "A feeling of thankfulness and appreciation.",
    "grief": "Intense sorrow, especially caused by someone's death.",
    "joy": "A feeling of pleasure and happiness.",
    "love": "A strong positive emotion of regard and affection.",
    "nervousness": "Apprehension, worry, anxiety.",
    "optimism": "Hopefulness and confidence about the future or the success of something.",
    "pride": "Pleasure or satisfaction due to one's own achievements or the achievements of those "
    "with whom one is closely associated.",
    "realization": "Becoming aware of something.",
    "relief": "Reassurance and relaxation following release from anxiety or distress.",
    "remorse": "Regret or guilty feeling.",
    "sadness": "Emotional pain, sorrow.",
    "surprise": "Feeling astonished, startled by something unexpected.",
    "neutral": "No emotion.",
}
